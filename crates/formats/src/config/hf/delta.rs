//! Gated DeltaNet in config.json.

use kernels::conv::MAX_KERNEL;
use serde_json::{Value as Json, json};

use super::super::delta::{DEFAULT_INTERVAL, DeltaFieldNames, MAX_HEAD_DIM, broken, by_interval};
use super::super::fields::{FULL, MAX_HEADS, MAX_LAYERS};
use super::super::{DeltaConfig, Hyperparameters};
use crate::error::Result;
use crate::json::{Object, describe};

const NAMES: DeltaFieldNames = DeltaFieldNames {
    key_heads: "linear_num_key_heads",
    value_heads: "linear_num_value_heads",
    key_dim: "linear_key_head_dim",
    value_dim: "linear_value_head_dim",
};
const KERNEL: &str = "linear_conv_kernel_dim";
const TYPES: &str = "layer_types";
pub(crate) const LINEAR: &str = "linear_attention";

/// Reads the recurrence, if any layer has it.
pub(crate) fn read(config: Object, layers: usize) -> Result<Option<DeltaConfig>> {
    let layers = linear_layers(config, layers)?;
    let delta = DeltaConfig {
        layers,
        key_heads: config.setting(NAMES.key_heads, MAX_HEADS, 16)?,
        value_heads: config.setting(NAMES.value_heads, MAX_HEADS, 32)?,
        key_dim: config.setting(NAMES.key_dim, MAX_HEAD_DIM, 128)?,
        value_dim: config.setting(NAMES.value_dim, MAX_HEAD_DIM, 128)?,
        kernel: config.setting(KERNEL, MAX_KERNEL, 4)?,
        tiled: false,
    };
    if let Some((field, problem)) = broken(&delta, &NAMES) {
        return Err(config.error(field, problem));
    }
    Ok(Some(delta).filter(|delta| delta.layers.contains(&true)))
}

/// Whether each layer has the recurrence: by `layer_types`, or else all but every
/// `full_attention_interval`-th. The reference library ignores the latter beside the former.
fn linear_layers(config: Object, layers: usize) -> Result<Vec<bool>> {
    let interval = config.setting("full_attention_interval", MAX_LAYERS, DEFAULT_INTERVAL)?;
    let Some(types) = config.array(TYPES)? else { return Ok(by_interval(layers, interval)) };
    if types.len() != layers {
        let problem = format!("expected one entry per layer ({layers}), found {}", types.len());
        return Err(config.error(TYPES, problem));
    }
    let is_linear = |kind: &Json| match kind.as_str() {
        Some(LINEAR) => Ok(true),
        Some(FULL) => Ok(false),
        _ => {
            let problem = format!("expected {LINEAR} or {FULL}, found {}", describe(kind));
            Err(config.error(TYPES, problem))
        }
    };
    types.iter().map(is_linear).collect()
}

/// Fields of config.json for the recurrence and for the attention beside it.
pub(crate) fn to_json(config: &Hyperparameters) -> Json {
    let kind = |layer| if config.delta_of(layer).is_some() { LINEAR } else { FULL };
    let gate = config.grouped_config().is_some_and(|grouped| grouped.gate);
    let mut json = json!({
        TYPES: (0..config.layers).map(kind).collect::<Vec<_>>(),
        "attn_output_gate": gate,
    });
    if let Some(delta) = &config.delta {
        json[NAMES.key_heads] = json!(delta.key_heads);
        json[NAMES.value_heads] = json!(delta.value_heads);
        json[NAMES.key_dim] = json!(delta.key_dim);
        json[NAMES.value_dim] = json!(delta.value_dim);
        json[KERNEL] = json!(delta.kernel);
    }
    json
}
