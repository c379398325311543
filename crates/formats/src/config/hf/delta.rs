//! Gated DeltaNet in config.json.

use serde_json::{Value as Json, json};

use super::super::delta::{DEFAULT_INTERVAL, by_interval, check};
use super::super::fields::{FULL, MAX_LAYERS};
use super::super::rows::{self, DELTA_LEAST, FieldSource};
use crate::config::hf::layer_types::types_of_layers;
use crate::config::schema::Hyperparameters;
use crate::config::schema::OfLayers;
use crate::error::Result;
use crate::json::{Object, extend};
use crate::layers::{DeltaSpec, OutputGate};

const TYPES: &str = "layer_types";
pub(crate) const LINEAR: &str = "linear_attention";

/// Defaults of the sizes.
pub(crate) fn defaults() -> Json {
    json!({
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    })
}

/// Reads the recurrence, if any layer has it.
pub(crate) fn read(config: Object, model: &mut Hyperparameters) -> Result<()> {
    let layers = linear_layers(config, model.layers)?;
    let source = FieldSource::ConfigJson(config);
    model.delta = Some(OfLayers { layers, spec: DeltaSpec::default() });
    rows::read(rows::DELTA, source, model)?;
    if let Some(OfLayers { spec, .. }) = &mut model.delta {
        spec.least = config.number(DELTA_LEAST.hf[0])?;
    }
    model.delta.iter().try_for_each(|delta| check(&delta.spec, source))?;
    model.delta = model.delta.take().and_then(OfLayers::some);
    Ok(())
}

/// Whether each layer has the recurrence: by `layer_types`, or else all but every
/// `full_attention_interval`-th. The reference library ignores the latter if there is the former.
fn linear_layers(config: Object, layers: usize) -> Result<Vec<bool>> {
    let interval = config.setting("full_attention_interval", MAX_LAYERS, DEFAULT_INTERVAL)?;
    let types = types_of_layers(config, TYPES, layers, &[(LINEAR, true), (FULL, false)])?;
    Ok(types.unwrap_or_else(|| by_interval(layers, interval)))
}

/// Fields of config.json for the recurrence and for the attention of other layers.
pub(crate) fn to_json(config: &Hyperparameters) -> Json {
    let kind = |layer| if OfLayers::has(&config.delta, layer) { LINEAR } else { FULL };
    let mut json = json!({
        TYPES: (0..config.layers).map(kind).collect::<Vec<_>>(),
        "attn_output_gate": config.grouped.gate == OutputGate::WithQueries,
    });
    extend(&mut json, rows::to_json(rows::DELTA, config));
    if let Some(OfLayers { spec: DeltaSpec { least: Some(least), .. }, .. }) = &config.delta {
        json[DELTA_LEAST.hf[0]] = json!(least);
    }
    json
}
