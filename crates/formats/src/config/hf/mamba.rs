//! State spaces in config.json.

use serde_json::{Value as Json, json};

use super::super::fields::{MAX_STATE, MAX_WIDTH};
use super::super::mamba::check;
use super::super::rows::{self, FieldRow, FieldSource};
use crate::config::schema::Hyperparameters;
use crate::config::schema::OfLayers;
use crate::error::Result;
use crate::json::{Object, describe, extend};
use crate::layers::StateSpaceSpec;

const LIMITS: &str = "time_step_limit";

/// Defaults of the sizes.
pub(crate) fn defaults() -> Json {
    json!({"mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4})
}

/// Reads the state spaces of the layers that have them, if any has, whose sizes are in the fields
/// of `names`.
pub(crate) fn read(
    config: Object,
    layers: Vec<bool>,
    names: &SpaceFields,
    model: &mut Hyperparameters,
) -> Result<()> {
    if !layers.contains(&true) {
        return Ok(());
    }
    let source = FieldSource::ConfigJson(config);
    let limits = limits(config)?;
    let spec = StateSpaceSpec { limits, ..StateSpaceSpec::default() };
    model.mamba = Some(OfLayers { layers, spec });
    rows::read(names.rows, source, model)?;
    let Some(OfLayers { spec, .. }) = &mut model.mamba else { return Ok(()) };
    spec.head_dim = head_dim(config, names, spec.heads)?;
    check(spec, source, &names.rows[1])
}

/// The fields of a family's config.json that have the sizes.
pub(crate) struct SpaceFields {
    /// Heads, groups, the state and the kernel.
    pub rows: &'static [FieldRow; 4],
    pub head_dim: &'static str,
}

/// The fields that most families use.
pub(crate) const FIELDS: SpaceFields = SpaceFields { rows: rows::SPACE, head_dim: "mamba_d_head" };

/// Values of a head: a number, or as many as fill the width of all heads.
fn head_dim(config: Object, names: &SpaceFields, heads: usize) -> Result<usize> {
    let auto = config.get(names.head_dim).is_some_and(|dim| dim == "auto");
    if !auto && config.has(names.head_dim) {
        return config.positive(names.head_dim, MAX_STATE);
    }
    let inner = match config.opt_positive("mamba_d_ssm", MAX_WIDTH)? {
        Some(inner) => inner,
        None => {
            let hidden = config.positive("hidden_size", MAX_WIDTH)?;
            hidden * config.setting("mamba_expand", MAX_STATE, 2)?
        }
    };
    match inner.is_multiple_of(heads) && inner / heads <= MAX_STATE {
        true => Ok(inner / heads),
        false => {
            let problem = format!("expected a divisor of {inner} values, found {heads}");
            Err(config.error(names.rows[0].hf[0], problem))
        }
    }
}

/// Least and greatest length of a step.
fn limits(config: Object) -> Result<[f32; 2]> {
    let Some(list) = config.array(LIMITS)? else { return Ok([0.0, f32::INFINITY]) };
    let number = |value: &Json| match value {
        Json::Object(named) if named.get("__float__").is_some_and(|name| name == "Infinity") => {
            Some(f32::INFINITY)
        }
        // Writers that know no infinity have a large number instead.
        value => {
            value.as_f64().map(|number| if number > 1e30 { f32::INFINITY } else { number as f32 })
        }
    };
    match list.iter().map(number).collect::<Option<Vec<_>>>().as_deref() {
        Some([least, most]) if *least >= 0.0 && least <= most => Ok([*least, *most]),
        _ => {
            let found = list.iter().map(describe).collect::<Vec<_>>().join(", ");
            let expected = "expected two numbers of at least 0, the smaller first";
            Err(config.error(LIMITS, format!("{expected}, found {found}")))
        }
    }
}

/// SpaceFields of config.json for state spaces.
pub(crate) fn to_json(config: &Hyperparameters, names: &SpaceFields) -> Json {
    let Some(OfLayers { spec, .. }) = &config.mamba else { return Json::Null };
    let (heads, others) = names.rows.split_at(1);
    let mut json = rows::to_json(heads, config);
    json[names.head_dim] = json!(spec.head_dim);
    extend(&mut json, rows::to_json(others, config));
    // JSON has no infinity.
    json[LIMITS] = json!(spec.limits.map(|limit| limit.min(f32::MAX)));
    json
}
