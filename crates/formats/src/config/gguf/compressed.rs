//! Attention to compressed rows and hyper-connections in the metadata of GGUF files.

use super::super::fields::{GgufKeys, MAX_RATIO, MAX_TOKENS};
use super::super::rows::{COMPRESSED_THETA, FieldSource};
use crate::config::schema::{CompressedConfig, Hyperparameters, INDEXED_RATIO};
use crate::error::Result;
use crate::layers::{RopeConfig, RopeScaling};

/// Positions to a row, or to a block, of each layer.
pub(crate) const COMPRESS_RATIOS: &str = "attention.compress_ratios";

/// Reads the sizes. The rotary embedding of the model is what the common keys say: the base of
/// layers without compressed rows, and the scaling of the others.
pub(super) fn read(keys: &GgufKeys, model: &mut Hyperparameters) -> Result<()> {
    let source = FieldSource::Gguf(keys);
    // Every layer has a window.
    keys.positive("attention.sliding_window", MAX_TOKENS)?;
    let ratios = ratios(keys, model.layers)?;
    let indexed: Vec<_> = ratios.iter().map(|&ratio| ratio == INDEXED_RATIO).collect();
    let theta = COMPRESSED_THETA.gguf[0];
    let found = keys.above_zero(theta)?;
    let theta = keys.metadata.required(&keys.key(theta), "a float", found)?;
    // YaRN leaves cosines and sines unscaled here.
    model.rope.magnitude = 1.0;
    let rope = RopeConfig { theta, ..model.rope.clone() };
    model.rope.scaling = RopeScaling::None;
    let rope_dim = rope.dim;
    let sizes = CompressedConfig { rope_dim, ratios, indexed, ..CompressedConfig::of(rope) };
    crate::config::compressed::read(source, sizes, model)
}

/// Positions to a compressed row in each layer. The array may be longer than
/// the model.
pub(crate) fn ratios(keys: &GgufKeys, layers: usize) -> Result<Vec<usize>> {
    let key = keys.key(COMPRESS_RATIOS);
    let ratios = keys.metadata.opt_ints(&key)?;
    let ratios = keys.metadata.required(&key, "an array of integers", ratios)?;
    if ratios.len() < layers {
        let problem = format!("expected one entry per layer ({layers}), found {}", ratios.len());
        return Err(keys.metadata.error(&key, problem));
    }
    let of_layer = |(layer, &ratio): (usize, &i32)| {
        let known = usize::try_from(ratio).ok().filter(|&ratio| ratio <= MAX_RATIO);
        known.ok_or_else(|| {
            let problem = format!("expected integers from 0 to {MAX_RATIO}");
            keys.metadata.error(&key, format!("{problem}, found {ratio} (layer {layer})"))
        })
    };
    ratios[..layers].iter().enumerate().map(of_layer).collect()
}
