//! Reads rotary position embedding from the metadata of GGUF files.

use kernels::quant::QuantType;

use super::super::family::Family;
use super::super::fields::{GgufKeys, MAX_HEADS, MAX_TOKENS};
use super::super::rows::{ROPE_SCALING, ROTATED, THETA};
use super::super::yarn;
use crate::config::gguf::tensors::{LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS, find};
use crate::config::schema::Hyperparameters;
use crate::error::{Error, Result, shown};
use crate::gguf::GgufFile;
use crate::layers::{RopeConfig, RopeScaling};
use crate::tensor::TensorView;

/// `mscale_all_dim`; a tenth of it in latent attention.
pub(crate) const LOG_MULTIPLIER: &str = "rope.scaling.yarn_log_multiplier";

/// Reads the rotary parameters; returns YaRN's factor of the scores of latent attention.
pub(super) fn read(
    keys: &GgufKeys,
    file: &GgufFile,
    family: &Family,
    model: &mut Hyperparameters,
) -> Result<f32> {
    let latent = model.latent.is_some();
    let dim = match model.latent {
        Some(sizes) => sizes.rope_dim,
        None => {
            let named = keys.opt_positive(ROTATED.gguf[0], MAX_HEADS)?.unwrap_or(model.head_dim);
            if family.gguf.half_rotated { named / 2 } else { named }
        }
    };
    let scaling = rope_scaling(keys, file, family, dim)?;
    let factor = match scaling {
        RopeScaling::Yarn { factor, .. } => Some(factor),
        _ => None,
    };
    let log_multiplier = match factor {
        Some(_) => keys.opt_above_zero(LOG_MULTIPLIER)?,
        None => None,
    };
    let magnitude = match (&scaling, factor) {
        (RopeScaling::LongRope { .. }, _) => {
            keys.opt_above_zero("rope.scaling.attn_factor")?.unwrap_or(1.0)
        }
        (_, Some(factor)) => magnitude(keys, factor, log_multiplier, latent)?,
        (_, None) => 1.0,
    };
    model.rope = RopeConfig {
        theta: keys.above_zero(THETA.gguf[0])?.unwrap_or(10_000.0),
        dim,
        layout: family.gguf.rope,
        scaling,
        magnitude,
    };
    let of_scores = factor.zip(log_multiplier).filter(|_| latent);
    Ok(of_scores.map_or(1.0, |(factor, log)| yarn::sharpening(factor, log)))
}

/// Factor of the cosines and sines. The converter writes transformers' `attention_factor` as
/// `yarn_attn_factor`. With `yarn_log_multiplier`, `mscale` of latent attention equals
/// `mscale_all_dim` as in llama.cpp, and the factor is 1. In other families the multiplier is
/// `mscale_all_dim`, and `mscale` is 1.
fn magnitude(
    keys: &GgufKeys,
    factor: f32,
    log_multiplier: Option<f32>,
    latent: bool,
) -> Result<f32> {
    let more = keys.opt_above_zero("rope.scaling.attn_factor")?.unwrap_or(1.0);
    let plain = yarn::sharpening(factor, yarn::LOG_MULTIPLIER);
    let default = match log_multiplier {
        Some(_) if latent => 1.0,
        Some(all) => plain / yarn::sharpening(factor, yarn::tenth(all)),
        None => plain,
    };
    Ok(more * keys.opt_above_zero("rope.scaling.yarn_attn_factor")?.unwrap_or(default))
}

fn yarn(keys: &GgufKeys, family: &Family) -> Result<RopeScaling> {
    let (fast, slow) = yarn::BETAS;
    let original = keys.opt_count("rope.scaling.original_context_length", MAX_TOKENS)?;
    Ok(RopeScaling::Yarn {
        factor: keys.above_zero(ROPE_SCALING.gguf[0])?.unwrap_or(1.0),
        original_context: match original {
            Some(original) => original,
            None => keys.positive("context_length", MAX_TOKENS)?,
        },
        beta_fast: keys.opt_above_zero("rope.scaling.yarn_beta_fast")?.unwrap_or(fast),
        beta_slow: keys.opt_above_zero("rope.scaling.yarn_beta_slow")?.unwrap_or(slow),
        // No key has this flag: it is a property of the family.
        truncate: match (family.hf.default_scaling)() {
            RopeScaling::Yarn { truncate, .. } => truncate,
            _ => true,
        },
    })
}

fn rope_scaling(
    keys: &GgufKeys,
    file: &GgufFile,
    family: &Family,
    dim: usize,
) -> Result<RopeScaling> {
    let key = keys.key("rope.scaling.type");
    let factor = || keys.above_zero(ROPE_SCALING.gguf[0]);
    let scaling = match keys.metadata.opt_text(&key)? {
        // The factors are tensors.
        Some("none" | "longrope") => RopeScaling::None,
        Some("yarn") => yarn(keys, family)?,
        Some("linear") => linear(factor()?.unwrap_or(1.0)),
        // Before the type had a key, the factor alone meant linear scaling.
        None => linear(keys.above_zero("rope.scale_linear")?.or(factor()?).unwrap_or(1.0)),
        Some(other) => {
            let problem =
                format!("expected none, linear, yarn or longrope, found {}", shown(other));
            return Err(keys.metadata.error(&key, problem));
        }
    };
    if let (Some(long), Some(short)) = (find(file, LONG_FACTORS), find(file, SHORT_FACTORS)) {
        let original = keys.opt_count("rope.scaling.original_context_length", MAX_TOKENS)?;
        let original_context = match original {
            Some(original) => original,
            None => keys.positive("context_length", MAX_TOKENS)?,
        };
        let (short, long) = (factors(short, dim)?, factors(long, dim)?);
        return Ok(RopeScaling::LongRope { short, long, original_context });
    }
    match (find(file, ROPE_FACTORS), scaling) {
        (None, scaling) => Ok(scaling),
        (Some(tensor), RopeScaling::None) => {
            let parts = if family.gguf.half_rotated { 2 } else { 1 };
            let mut factors = factors(tensor, parts * dim)?;
            factors.truncate(dim / 2);
            Ok(RopeScaling::Factors { factors })
        }
        (Some(tensor), _) => {
            let problem = "expected either scaling or factors, found both";
            Err(Error::tensor(tensor.path(), ROPE_FACTORS, problem))
        }
    }
}

fn linear(factor: f32) -> RopeScaling {
    if factor == 1.0 { RopeScaling::None } else { RopeScaling::Linear { factor } }
}

fn factors(tensor: &TensorView, dim: usize) -> Result<Vec<f32>> {
    let error = |problem: String| Error::tensor(tensor.path(), &tensor.source_name, problem);
    let pairs = dim / 2;
    let f32: &QuantType = &kernels::quant::F32;
    if tensor.ty != f32 || tensor.shape != [pairs] {
        let (ty, shape) = (tensor.ty, &tensor.shape);
        return Err(error(format!("expected f32 [{pairs}], found {ty} {shape:?}")));
    }
    let values = tensor.to_f32()?;
    match values.iter().find(|value| !value.is_finite() || **value <= 0.0) {
        None => Ok(values),
        Some(bad) => Err(error(format!("expected numbers above 0, found {bad}"))),
    }
}
