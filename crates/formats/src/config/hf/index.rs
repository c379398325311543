//! The index over the positions of latent attention in config.json (DeepSeek V3.2, GLM-5).

use serde_json::{Value as Json, json};

use super::super::fields::MAX_LAYERS;
use super::super::rows::{self, FieldSource};
use crate::config::hf::layer_types::kinds_of;
use crate::config::schema::Hyperparameters;
use crate::config::schema::IndexConfig;
use crate::error::Result;
use crate::json::{Object, extend};
use crate::layers::RopeLayout;

const TYPES: &str = "indexer_types";
const PATTERN: &str = "index_topk_pattern";
/// Whether the positions after the last complete pool of keys are attended to whatever is chosen.
const SELECT_TAIL: &str = "index_kpool_always_select_tail";
const FULL: &str = "full";
const SHARED: &str = "shared";

/// Defaults of an index of `heads` heads.
pub(crate) fn defaults(heads: usize) -> Json {
    json!({"index_n_heads": heads, "index_head_dim": 128, "index_topk": 2048})
}

/// Reads the index.
pub(crate) fn read(config: Object, layout: RopeLayout, model: &mut Hyperparameters) -> Result<()> {
    let layers = own_index(config, model.layers)?;
    model.index = Some(IndexConfig { layout, layers, ..IndexConfig::default() });
    rows::read(rows::INDEX, FieldSource::ConfigJson(config), model)?;
    let pooled = model.index.as_ref().is_some_and(|index| index.pool.is_some());
    match config.flag(SELECT_TAIL)? {
        Some(false) if pooled => Err(config.error(SELECT_TAIL, "expected true, found false")),
        _ => Ok(()),
    }
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
    for key in [TYPES, PATTERN] {
        if matches!(config.get(key), Some(Json::String(_))) {
            continue;
        }
        let Some(types) = config.array(key)? else { continue };
        return checked(key, kinds_of(config, key, types, &[(FULL, true), (SHARED, false)])?);
    }
    if let Some(Json::String(letters)) = config.get(PATTERN) {
        let own = |letter: char| match letter {
            'F' => Ok(true),
            'S' => Ok(false),
            other => Err(config.error(PATTERN, format!("expected F or S, found {other:?}"))),
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
    let kind = |own: &bool| if *own { FULL } else { SHARED };
    let mut json = rows::to_json(rows::INDEX, config);
    extend(&mut json, json!({TYPES: index.layers.iter().map(kind).collect::<Vec<_>>()}));
    json
}
