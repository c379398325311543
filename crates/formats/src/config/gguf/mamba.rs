//! State spaces and short convolutions in the metadata of GGUF files.

use super::super::fields::{GgufKeys, MAX_STATE, MAX_WIDTH};
use super::super::mamba::check;
use super::super::rows::{self, CONV_KERNEL, FieldSource, KV_HEADS, SPACE_GROUPS, SPACE_HEADS};
use crate::config::gguf::tensors::find;
use crate::config::schema::Hyperparameters;
use crate::config::schema::OfLayers;
use crate::error::Result;
use crate::gguf::GgufFile;
use crate::layers::{ConvolutionSpec, StateSpaceSpec};

/// Key of a factor of what a projection gives, which llama.cpp's files have in their weights.
pub(crate) const PROJECTION_SCALE: &str = "projection_scale";
/// Key of a norm before gates, which llama.cpp does not know.
pub(crate) const NORM_FIRST: &str = "ssm.norm_before_gate";
/// Keys of the least and the greatest length of a step, which llama.cpp does not know either.
pub(crate) const MIN_STEP: &str = "ssm.time_step_min";
pub(crate) const MAX_STEP: &str = "ssm.time_step_max";
/// Values of all heads.
pub(crate) const INNER: &str = "ssm.inner_size";

/// Whether each layer is without attention; all attend where there is no list.
pub(crate) fn without_attention(keys: &GgufKeys, layers: usize) -> Result<Vec<bool>> {
    Ok(keys.zeros(KV_HEADS.gguf[0], layers)?.unwrap_or_else(|| vec![false; layers]))
}

/// Reads the state spaces of the layers that have them, if any has.
pub(crate) fn read(keys: &GgufKeys, layers: Vec<bool>, model: &mut Hyperparameters) -> Result<()> {
    if !layers.contains(&true) {
        return Ok(());
    }
    let source = FieldSource::Gguf(keys);
    let limits = [
        keys.opt_above_zero(MIN_STEP)?.unwrap_or(0.0),
        keys.opt_above_zero(MAX_STEP)?.unwrap_or(f32::INFINITY),
    ];
    let spec = StateSpaceSpec { limits, ..StateSpaceSpec::default() };
    model.mamba = Some(OfLayers { layers, spec });
    rows::read(rows::SPACE, source, model)?;
    let Some(OfLayers { spec, .. }) = &mut model.mamba else { return Ok(()) };
    let (heads, inner) = (spec.heads, keys.positive(INNER, MAX_WIDTH)?);
    if !inner.is_multiple_of(heads) || inner / heads > MAX_STATE {
        let name = source.name(&SPACE_HEADS);
        let problem = format!("expected a multiple of {name} ({heads}), found {inner}");
        return Err(keys.metadata.error(&keys.key(INNER), problem));
    }
    spec.head_dim = inner / heads;
    check(spec, source, &SPACE_GROUPS)
}

/// Reads the convolutions of the layers without attention. They have biases where the first has.
pub(crate) fn convolutions(
    keys: &GgufKeys,
    file: &GgufFile,
    model: &mut Hyperparameters,
) -> Result<()> {
    let layers = without_attention(keys, model.layers)?;
    let first = layers.iter().position(|has| *has);
    let has_bias = |first| find(file, &format!("blk.{first}.shortconv.conv.bias")).is_some();
    let spec = ConvolutionSpec { biased: first.is_some_and(has_bias), ..Default::default() };
    model.convs = Some(OfLayers { layers, spec });
    CONV_KERNEL.read(FieldSource::Gguf(keys), model)?;
    model.convs = model.convs.take().and_then(OfLayers::some);
    Ok(())
}
