//! State spaces and short convolutions in the metadata of GGUF files.

use kernels::conv::MAX_KERNEL;

use super::super::fields::{GgufKeys, MAX_HEADS, MAX_WIDTH};
use super::super::mamba::{MAX_STATE, broken};
use super::super::{ConvConfig, MambaConfig, MambaNorm};
use super::find;
use crate::error::Result;
use crate::gguf::GgufFile;

/// Key of a factor of what a projection gives, which llama.cpp's files have in their weights.
pub(crate) const PROJECTION_SCALE: &str = "projection_scale";
/// Key of a norm before gates, which llama.cpp does not know.
pub(crate) const NORM_FIRST: &str = "ssm.norm_before_gate";
/// Keys of the least and the greatest length of a step, which llama.cpp does not know either.
pub(crate) const LEAST_STEP: &str = "ssm.time_step_min";
pub(crate) const MOST_STEP: &str = "ssm.time_step_max";
const GROUPS: &str = "ssm.group_count";
const INNER: &str = "ssm.inner_size";
const HEADS: &str = "ssm.time_step_rank";
/// Heads of keys and values of each layer, 0 where it does not attend.
const KV_HEADS: &str = "attention.head_count_kv";

/// Whether each layer is without attention; all attend where there is no list.
pub(crate) fn without_attention(keys: &GgufKeys, layers: usize) -> Result<Vec<bool>> {
    Ok(keys.zeros(KV_HEADS, layers)?.unwrap_or_else(|| vec![false; layers]))
}

/// Reads the state spaces of the layers that have them.
pub(crate) fn read(keys: &GgufKeys, layers: Vec<bool>) -> Result<MambaConfig> {
    let heads = keys.positive(HEADS, MAX_HEADS)?;
    let inner = keys.positive(INNER, MAX_WIDTH)?;
    if !inner.is_multiple_of(heads) || inner / heads > MAX_STATE {
        let problem =
            format!("expected a multiple of {} ({heads}), found {inner}", keys.key(HEADS));
        return Err(keys.metadata.error(&keys.key(INNER), problem));
    }
    let groups = keys.positive(GROUPS, MAX_HEADS)?;
    let mamba = MambaConfig {
        layers,
        heads,
        head_dim: inner / heads,
        groups,
        state: keys.positive("ssm.state_size", MAX_STATE)?,
        kernel: keys.positive("ssm.conv_kernel", MAX_KERNEL)?,
        norm: MambaNorm::BehindGate,
        limits: [
            keys.opt_above_zero(LEAST_STEP)?.unwrap_or(0.0),
            keys.opt_above_zero(MOST_STEP)?.unwrap_or(f32::INFINITY),
        ],
    };
    match broken(&mamba) {
        None => Ok(mamba),
        Some(problem) => Err(keys.metadata.error(&keys.key(GROUPS), problem)),
    }
}

/// Reads the convolutions of the layers without attention. They have biases where the first has.
pub(crate) fn convolutions(
    keys: &GgufKeys,
    file: &GgufFile,
    layers: usize,
) -> Result<Option<ConvConfig>> {
    let layers = without_attention(keys, layers)?;
    let kernel = keys.positive("shortconv.l_cache", MAX_KERNEL)?;
    let Some(first) = layers.iter().position(|has| *has) else { return Ok(None) };
    let biased = find(file, &format!("blk.{first}.shortconv.conv.bias")).is_some();
    Ok(Some(ConvConfig { layers, kernel, biased }))
}
