//! State spaces in config.json.

use kernels::conv::MAX_KERNEL;
use serde_json::{Value as Json, json};

use super::super::fields::{MAX_HEADS, MAX_WIDTH};
use super::super::mamba::{MAX_STATE, broken};
use super::super::{Hyperparameters, MambaConfig, MambaNorm};
use crate::error::Result;
use crate::json::{Object, describe};

/// Names of the sizes in a family's config.json.
pub(crate) struct MambaFields {
    pub heads: &'static str,
    pub head_dim: &'static str,
    pub groups: &'static str,
    pub state: &'static str,
    pub kernel: &'static str,
}

/// The names that most families use.
pub(crate) const FIELDS: MambaFields = MambaFields {
    heads: "mamba_n_heads",
    head_dim: "mamba_d_head",
    groups: "mamba_n_groups",
    state: "mamba_d_state",
    kernel: "mamba_d_conv",
};
const LIMITS: &str = "time_step_limit";

/// Sizes where config.json does not say; without values of a head, these follow from the width.
pub(crate) struct MambaDefaults {
    pub heads: usize,
    pub head_dim: Option<usize>,
    pub groups: usize,
    pub state: usize,
}

/// Reads the state spaces of the layers that have them.
pub(crate) fn read(
    config: Object,
    layers: Vec<bool>,
    names: &MambaFields,
    defaults: &MambaDefaults,
) -> Result<MambaConfig> {
    let heads = config.setting(names.heads, MAX_HEADS, defaults.heads)?;
    let groups = config.setting(names.groups, MAX_HEADS, defaults.groups)?;
    let mamba = MambaConfig {
        layers,
        heads,
        head_dim: head_dim(config, names, defaults, heads)?,
        groups,
        state: config.setting(names.state, MAX_STATE, defaults.state)?,
        kernel: config.setting(names.kernel, MAX_KERNEL, 4)?,
        norm: MambaNorm::BehindGate,
        limits: limits(config)?,
    };
    match broken(&mamba) {
        None => Ok(mamba),
        Some(problem) => Err(config.error(names.groups, problem)),
    }
}

/// Values of a head: a number, or as many as fill the width of all heads.
fn head_dim(
    config: Object,
    names: &MambaFields,
    defaults: &MambaDefaults,
    heads: usize,
) -> Result<usize> {
    let auto = config.get(names.head_dim).is_some_and(|dim| dim == "auto");
    if !auto && config.has(names.head_dim) {
        return config.positive(names.head_dim, MAX_STATE);
    }
    if let Some(dim) = defaults.head_dim {
        return Ok(dim);
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
            Err(config.error(names.heads, problem))
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

/// Fields of config.json for state spaces.
pub(crate) fn to_json(config: &Hyperparameters, names: &MambaFields) -> Json {
    let Some(mamba) = &config.mamba else { return Json::Null };
    // JSON has no infinity.
    let limits = mamba.limits.map(|limit| limit.min(f32::MAX));
    json!({
        names.heads: mamba.heads,
        names.head_dim: mamba.head_dim,
        names.groups: mamba.groups,
        names.state: mamba.state,
        names.kernel: mamba.kernel,
        LIMITS: limits,
    })
}
