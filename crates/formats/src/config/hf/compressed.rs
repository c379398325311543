//! Attention to compressed rows and hyper-connections in config.json, in the style of the
//! published checkpoints (`compress_ratios`, `qk_rope_head_dim`) and in that of transformers 5
//! (`layer_types`, `compress_rates`, `partial_rotary_factor`).

use serde_json::{Value as Json, json};

use super::super::fields::{MAX_HEADS, MAX_LAYERS, MAX_RATIO, SLIDING};
use super::super::rows::FieldSource;
use super::rope;
use crate::config::hf::layer_types::kinds_of;
use crate::config::schema::{CompressedConfig, Hyperparameters, INDEXED_RATIO};
use crate::error::Result;
use crate::json::{Object, describe};

/// Rotated values of a head, and the share that they are.
pub(crate) const ROPE_DIM: &str = "qk_rope_head_dim";
const SHARE: &str = "partial_rotary_factor";
/// Compression of each layer, by number and by name.
const RATIOS: &str = "compress_ratios";
const TYPES: &str = "layer_types";
/// Names of layers in `layer_types` and in `compress_rates`.
pub(crate) const WINDOW_ONLY: &str = SLIDING;
pub(crate) const INDEXED: &str = "compressed_sparse_attention";
pub(crate) const POOLED: &str = "heavily_compressed_attention";

/// Defaults of the sizes, where config.json has an index in any layer.
pub(crate) fn defaults() -> Json {
    json!({
        "q_lora_rank": 1024,
        "o_groups": 8,
        "o_lora_rank": 1024,
        "index_n_heads": 64,
        "index_head_dim": 128,
        "index_topk": 512,
        "hc_mult": 4,
        "hc_sinkhorn_iters": 20,
        "hc_eps": 1e-6,
    })
}

/// Reads attention to compressed rows, both rotary embeddings, and hyper-connections.
pub(super) fn read(config: Object, model: &mut Hyperparameters) -> Result<()> {
    let source = FieldSource::ConfigJson(config);
    let rope_dim = rope_dim(config, model.head_dim)?;
    let (ratios, indexed) = schedule(config, model.layers)?;
    let [main, rope] = rope::read_pair(config, rope_dim)?;
    model.rope = main;
    let sizes = CompressedConfig { rope_dim, ratios, indexed, ..CompressedConfig::of(rope) };
    crate::config::compressed::read(source, sizes, model)
}

fn rope_dim(config: Object, head_dim: usize) -> Result<usize> {
    let of_share = |share: f32| (f64::from(share.min(2.0)) * head_dim as f64).round() as usize;
    let share = config.above_zero(SHARE)?.map(of_share);
    match (config.opt_positive(ROPE_DIM, MAX_HEADS)?, share) {
        (Some(dim), Some(share)) if dim != share => {
            let problem = format!("expected {ROPE_DIM} ({dim}) of {head_dim}, found {share}");
            Err(config.error(SHARE, problem))
        }
        (Some(dim), _) | (None, Some(dim)) => Ok(dim),
        (None, None) => Ok(rope::share_of_main(config)?.map_or(head_dim / 8, of_share)),
    }
}

/// Per layer: positions to a compressed row, and whether an index chooses the rows.
fn schedule(config: Object, layers: usize) -> Result<(Vec<usize>, Vec<bool>)> {
    if let Some(ratios) = config.array(RATIOS)? {
        return by_ratio(config, ratios, layers);
    }
    let types = layer_list(config, TYPES, layers)?;
    let types = config.need(RATIOS, &format!("an array, as {TYPES} is absent"), types)?;
    let rates = config.object("compress_rates")?;
    let rate = |key: &str, single: &str, default: usize| -> Result<usize> {
        let of_type = rates.map_or(Ok(None), |rates| rates.opt_positive(key, MAX_RATIO))?;
        Ok(config.opt_positive(single, MAX_RATIO)?.or(of_type).unwrap_or(default))
    };
    let indexed = rate(INDEXED, "compress_rate_csa", INDEXED_RATIO)?;
    let pooled = rate(POOLED, "compress_rate_hca", 128)?;
    let kinds = [(WINDOW_ONLY, (0, false)), (INDEXED, (indexed, true)), (POOLED, (pooled, false))];
    Ok(kinds_of(config, TYPES, types, &kinds)?.into_iter().unzip())
}

/// The first entries of `compress_ratios`. Others are of layers of multi-token prediction.
fn by_ratio(config: Object, ratios: &[Json], layers: usize) -> Result<(Vec<usize>, Vec<bool>)> {
    if ratios.len() < layers {
        let problem = format!("expected one entry per layer ({layers}), found {}", ratios.len());
        return Err(config.error(RATIOS, problem));
    }
    let of_layer = |(layer, value): (usize, &Json)| {
        let ratio = value.as_u64().and_then(|ratio| usize::try_from(ratio).ok());
        let ratio = ratio.filter(|&ratio| ratio <= MAX_RATIO).ok_or_else(|| {
            let problem = format!("expected integers from 0 to {MAX_RATIO}");
            config.error(RATIOS, format!("{problem}, found {} (layer {layer})", describe(value)))
        })?;
        Ok((ratio, ratio == INDEXED_RATIO))
    };
    ratios[..layers].iter().enumerate().map(of_layer).collect()
}

/// Per layer, from `mlp_layer_types` or `num_hash_layers`: whether a table chooses the experts.
pub(crate) fn by_token(config: Object, layers: usize, default: usize) -> Result<Vec<bool>> {
    const KEY: &str = "mlp_layer_types";
    if let Some(types) = layer_list(config, KEY, layers)? {
        return kinds_of(config, KEY, types, &[(BY_TOKEN, true), (BY_SCORE, false)]);
    }
    let count = config.count("num_hash_layers", MAX_LAYERS)?.unwrap_or(default);
    Ok((0..layers).map(|layer| layer < count).collect())
}

/// Names of layers in `mlp_layer_types`.
pub(crate) const BY_TOKEN: &str = "hash_moe";
pub(crate) const BY_SCORE: &str = "moe";

/// An array with an entry for each layer. Entries for layers of multi-token prediction are left
/// out.
fn layer_list<'a>(config: Object<'a>, key: &str, layers: usize) -> Result<Option<&'a [Json]>> {
    let Some(list) = config.array(key)? else { return Ok(None) };
    let more = config.count("num_nextn_predict_layers", MAX_LAYERS)?.unwrap_or(0);
    if list.len() != layers && list.len() != layers + more {
        let problem = format!("expected one entry per layer ({layers}), found {}", list.len());
        return Err(config.error(key, problem));
    }
    Ok(Some(&list[..layers]))
}
