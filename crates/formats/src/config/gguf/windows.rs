//! Attention windows in the metadata of GGUF files.

use super::super::fields::{GgufKeys, MAX_HEADS, MAX_TOKENS};
use super::super::rows::KV_HEADS;
use crate::config::family::{Family, Windows};
use crate::config::schema::{Hyperparameters, WindowedConfig};
use crate::error::Result;
use crate::layers::{RopeConfig, RopeScaling};

/// Window of each layer; 0 means none. Without flags of layers and with a period, from the file or
/// the family, the last layer of each period has no window.
pub(super) fn windows(keys: &GgufKeys, family: &Family, layers: usize) -> Result<Windows> {
    let window = keys.opt_count("attention.sliding_window", MAX_TOKENS)?.or(family.gguf.window);
    if window.is_none() && family.gguf.window_period.is_some() {
        keys.positive("attention.sliding_window", MAX_TOKENS)?;
    }
    let own = usize::from(family.gguf.windows_before);
    let window = window.map(|positions| positions + own);
    let before_last = |layer: usize, period: usize| layer % period < period - 1;
    let slides = slides(keys, layers, family.gguf.window_period, before_last)?;
    Ok(slides.into_iter().map(|slides| window.filter(|_| slides)).collect())
}

/// Whether each layer has a window: from a list, or by a period, which is `period` where the file
/// has none. With a period of 0, or without one, all layers have a window.
pub(super) fn slides(
    keys: &GgufKeys,
    layers: usize,
    period: Option<usize>,
    of_period: fn(layer: usize, period: usize) -> bool,
) -> Result<Vec<bool>> {
    const PATTERN: &str = "attention.sliding_window_pattern";
    if let Some(flags) = keys.flags_of_layers(PATTERN, layers)? {
        return Ok(flags);
    }
    let Some(period) = period else { return Ok(vec![true; layers]) };
    let period = keys.metadata.opt_count(&keys.key(PATTERN))?.unwrap_or(period);
    Ok((0..layers).map(|layer| period == 0 || of_period(layer, period)).collect())
}

/// Sets what layers with a window have of their own, and the KV heads of the others: a rotary
/// embedding without scaling, whose base is `default` where the file has none, and KV heads, of
/// which each kind of layer has one number.
pub(crate) fn windowed(keys: &GgufKeys, default: f32, model: &mut Hyperparameters) -> Result<()> {
    let KindHeads { windowed: kv_heads, others } = kv_heads(keys, model)?;
    model.kv_heads = others;
    let head_dim = model.head_dim;
    let dim = keys.opt_positive("rope.dimension_count_swa", MAX_HEADS)?.unwrap_or(model.rope.dim);
    let theta = keys.above_zero("rope.freq_base_swa")?.unwrap_or(default);
    let (scaling, magnitude) = (RopeScaling::None, 1.0);
    let rope = RopeConfig { theta, dim, scaling, magnitude, ..model.rope.clone() };
    model.windowed = Some(WindowedConfig { kv_heads, head_dim, rope });
    check_kv_heads(keys, model)
}

/// KV heads of layers with a window, and of the others.
pub(crate) struct KindHeads {
    pub windowed: usize,
    pub others: usize,
}

/// The KV heads of the first layer of each kind that has any; those of the other kind where there
/// is no such layer.
pub(crate) fn kv_heads(keys: &GgufKeys, model: &Hyperparameters) -> Result<KindHeads> {
    let all = keys.sizes_of_layers(KV_HEADS.gguf[0], MAX_HEADS, model.layers)?;
    let all = all.unwrap_or_default();
    let of_kind = |windowed: bool| {
        let mut of_layers = all.iter().zip(&model.windows);
        let found = of_layers.find(|(heads, at)| **heads > 0 && at.is_some() == windowed);
        found.map(|(heads, _)| *heads)
    };
    let (windowed, others) = (of_kind(true), of_kind(false));
    let any = others.or(windowed).unwrap_or(model.kv_heads);
    Ok(KindHeads { windowed: windowed.unwrap_or(any), others: others.unwrap_or(any) })
}

/// Checks that each kind of layer has one number of KV heads.
pub(crate) fn check_kv_heads(keys: &GgufKeys, model: &Hyperparameters) -> Result<()> {
    const KEY: &str = KV_HEADS.gguf[0];
    let found = keys.sizes_of_layers(KEY, MAX_HEADS, model.layers)?.unwrap_or_default();
    let differs = |(layer, heads): (usize, &usize)| ![0, model.kv_heads_of(layer)].contains(heads);
    if found.iter().enumerate().any(differs) {
        let problem = format!("expected one number for each kind of layer, found {found:?}");
        return Err(keys.metadata.error(&keys.key(KEY), problem));
    }
    Ok(())
}
