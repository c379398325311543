//! Attention windows in the metadata of GGUF files.

use super::super::fields::{GgufKeys, MAX_HEADS, MAX_TOKENS};
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
    if let Some(flags) = keys.flags(PATTERN) {
        if flags.len() < layers {
            let problem = format!("expected one flag per layer ({layers}), found {}", flags.len());
            return Err(keys.metadata.error(&keys.key(PATTERN), problem));
        }
        return Ok(flags[..layers].to_vec());
    }
    let Some(period) = period else { return Ok(vec![true; layers]) };
    let period = keys.metadata.opt_count(&keys.key(PATTERN))?.unwrap_or(period);
    Ok((0..layers).map(|layer| period == 0 || of_period(layer, period)).collect())
}

/// What layers with a window have of their own: a rotary embedding without scaling, whose base is
/// `default` where the file has none.
pub(crate) fn windowed(
    keys: &GgufKeys,
    default: f32,
    model: &Hyperparameters,
) -> Result<WindowedConfig> {
    let (kv_heads, head_dim) = (model.kv_heads, model.head_dim);
    let dim = keys.opt_positive("rope.dimension_count_swa", MAX_HEADS)?.unwrap_or(head_dim);
    let theta = keys.above_zero("rope.freq_base_swa")?.unwrap_or(default);
    let (scaling, magnitude) = (RopeScaling::None, 1.0);
    let rope = RopeConfig { theta, dim, scaling, magnitude, ..model.rope.clone() };
    Ok(WindowedConfig { kv_heads, head_dim, rope })
}
