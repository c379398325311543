//! The index over the positions of latent attention in GGUF files.

use super::super::fields::{GgufKeys, MAX_HEADS, MAX_TOKENS};
use super::super::{IndexConfig, RopeLayout};
use super::find;
use crate::error::Result;
use crate::gguf::GgufFile;

/// Reads the index, if the file has the tensors of one: files of other writers may leave it out.
pub(crate) fn read(
    keys: &GgufKeys,
    file: &GgufFile,
    layers: usize,
    layout: RopeLayout,
) -> Result<Option<IndexConfig>> {
    let has_index = |layer| find(file, &format!("blk.{layer}.indexer.attn_k.weight")).is_some();
    let own: Vec<bool> = (0..layers).map(has_index).collect();
    let any = own.contains(&true);
    if !any && !file.tensors().is_empty() {
        return Ok(None);
    }
    Ok(Some(IndexConfig {
        heads: keys.positive("attention.indexer.head_count", MAX_HEADS)?,
        dim: keys.positive("attention.indexer.key_length", MAX_HEADS)?,
        top: keys.positive("attention.indexer.top_k", MAX_TOKENS)?,
        layout,
        layers: if any { own } else { vec![true; layers] },
    }))
}
