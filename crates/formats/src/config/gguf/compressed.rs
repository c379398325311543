//! Attention to compressed rows and hyper-connections in the metadata of GGUF files.

use super::super::fields::{GgufKeys, MAX_HEADS, MAX_ITERATIONS, MAX_RATIO, MAX_TOKENS, MAX_WIDTH};
use super::super::{
    Compressed, CompressedConfig, HyperConfig, INDEXED_RATIO, RopeConfig, RopeScaling,
};
use crate::error::Result;
use kernels::hyper::MAX_STREAMS;

/// Reads the sizes of `layers` layers. `rope` is what the common keys say: the base of layers
/// without compressed rows, and the scaling of the others.
pub(super) fn read(keys: &GgufKeys, layers: usize, rope: RopeConfig) -> Result<Compressed> {
    let float = |suffix: &str| {
        keys.metadata.required(&keys.key(suffix), "a float", keys.above_zero(suffix)?)
    };
    // Every layer has a window.
    keys.positive("attention.sliding_window", MAX_TOKENS)?;
    let ratios = ratios(keys, layers)?;
    let indexed: Vec<_> = ratios.iter().map(|&ratio| ratio == INDEXED_RATIO).collect();
    let size = |suffix, max| match indexed.contains(&true) {
        true => keys.positive(suffix, max),
        false => Ok(0),
    };
    let attention = CompressedConfig {
        q_rank: keys.positive("attention.q_lora_rank", MAX_WIDTH)?,
        rope_dim: rope.dim,
        groups: keys.positive("attention.output_group_count", MAX_HEADS)?,
        out_rank: keys.positive("attention.output_lora_rank", MAX_WIDTH)?,
        index_heads: size("attention.indexer.head_count", MAX_HEADS)?,
        index_dim: size("attention.indexer.key_length", MAX_HEADS)?,
        index_top: size("attention.indexer.top_k", MAX_TOKENS)?,
        ratios,
        indexed,
        // YaRN leaves cosines and sines unscaled here.
        rope: RopeConfig {
            theta: float("attention.compress_rope_freq_base")?,
            magnitude: 1.0,
            ..rope.clone()
        },
    };
    let hyper = HyperConfig {
        streams: keys.positive("hyper_connection.count", MAX_STREAMS)?,
        iterations: keys.positive("hyper_connection.sinkhorn_iterations", MAX_ITERATIONS)?,
        eps: float("hyper_connection.epsilon")?,
    };
    let rope = RopeConfig { scaling: RopeScaling::None, magnitude: 1.0, ..rope };
    Ok(Compressed { attention, rope, hyper })
}

/// Positions to a compressed row in each layer. The array may be longer than
/// the model.
fn ratios(keys: &GgufKeys, layers: usize) -> Result<Vec<usize>> {
    let key = keys.key("attention.compress_ratios");
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
