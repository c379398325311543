//! The index over the positions of latent attention in config.json (DeepSeek V3.2, GLM-5).

use serde_json::{Value as Json, json};

use super::super::fields::{MAX_HEADS, MAX_LAYERS, MAX_TOKENS};
use super::super::{Hyperparameters, IndexConfig, RopeLayout};
use crate::error::Result;
use crate::json::{Object, describe};

const HEADS: &str = "index_n_heads";
pub(super) const DIM: &str = "index_head_dim";
const TOP: &str = "index_topk";
const TYPES: &str = "indexer_types";
const PATTERN: &str = "index_topk_pattern";

/// Reads the index; by default it has `heads` heads.
pub(crate) fn read(
    config: Object,
    layers: usize,
    heads: usize,
    layout: RopeLayout,
) -> Result<IndexConfig> {
    Ok(IndexConfig {
        heads: config.setting(HEADS, MAX_HEADS, heads)?,
        dim: config.setting(DIM, MAX_HEADS, 128)?,
        top: config.setting(TOP, MAX_TOKENS, 2048)?,
        layout,
        layers: own_index(config, layers)?,
    })
}

/// Whether each layer has an index of its own: by a list, by a pattern of letters, or every
/// `index_topk_freq`-th after the first `index_skip_topk_offset`.
fn own_index(config: Object, layers: usize) -> Result<Vec<bool>> {
    let checked = |key, own: Vec<bool>| match own.len() == layers {
        true => Ok(own),
        false => {
            let problem = format!("expected one entry per layer ({layers}), found {}", own.len());
            Err(config.error(key, problem))
        }
    };
    let unknown = |key, found: String| {
        Err(config.error(key, format!("expected full or shared (F or S), found {found}")))
    };
    for key in [TYPES, PATTERN] {
        if !config.has(key) || matches!(config.get(key), Some(Json::String(_))) {
            continue;
        }
        let own = |kind: &Json| match kind.as_str() {
            Some("full") => Ok(true),
            Some("shared") => Ok(false),
            _ => unknown(key, describe(kind)),
        };
        let Some(types) = config.array(key)? else { continue };
        return checked(key, types.iter().map(own).collect::<Result<_>>()?);
    }
    if let Some(Json::String(letters)) = config.get(PATTERN) {
        let own = |letter: char| match letter {
            'F' => Ok(true),
            'S' => Ok(false),
            other => unknown(PATTERN, format!("{other:?}")),
        };
        return checked(PATTERN, letters.chars().map(own).collect::<Result<_>>()?);
    }
    let every = config.count("index_topk_freq", MAX_LAYERS)?.unwrap_or(1).max(1);
    let offset = config.count("index_skip_topk_offset", MAX_LAYERS)?.unwrap_or(2);
    Ok((0..layers).map(|layer| (layer + 1).saturating_sub(offset).is_multiple_of(every)).collect())
}

/// Fields of config.json for the index.
pub(crate) fn to_json(config: &Hyperparameters) -> Json {
    let Some(index) = &config.index else { return Json::Null };
    let kind = |own: &bool| if *own { "full" } else { "shared" };
    json!({
        HEADS: index.heads,
        DIM: index.dim,
        TOP: index.top,
        TYPES: index.layers.iter().map(kind).collect::<Vec<_>>(),
    })
}
