//! The index over the positions of latent attention in GGUF files.

use super::super::fields::GgufKeys;
use super::super::rows::{self, FieldSource};
use crate::config::gguf::tensors::find;
use crate::config::schema::Hyperparameters;
use crate::config::schema::IndexConfig;
use crate::error::Result;
use crate::gguf::GgufFile;
use crate::layers::RopeLayout;

/// Whether the positions after the last complete pool of keys are attended to whatever is chosen.
pub(crate) const SELECT_TAIL: &str = "attention.indexer.kpool_select_tail";

/// Whether each layer has an index of its own, which its tensors say here.
pub(crate) const INDEX_TYPES: &str = "attention.indexer.types";

/// Reads the index, if the file has the tensors of one: files of other writers may leave it out.
pub(crate) fn read(
    keys: &GgufKeys,
    file: &GgufFile,
    layout: RopeLayout,
    model: &mut Hyperparameters,
) -> Result<()> {
    let has_index = |layer| find(file, &format!("blk.{layer}.indexer.attn_k.weight")).is_some();
    let any = (0..model.layers).any(has_index);
    let own = (0..model.layers).map(|layer| !model.attends(layer) || has_index(layer)).collect();
    if !any && !file.tensors().is_empty() {
        return Ok(());
    }
    let layers = if any { own } else { vec![true; model.layers] };
    model.index = Some(IndexConfig { layout, layers, ..IndexConfig::default() });
    rows::read(rows::INDEX, FieldSource::Gguf(keys), model)?;
    match keys.metadata.opt_flag(&keys.key(SELECT_TAIL))? {
        Some(false) if model.index.as_ref().is_some_and(|index| index.pool.is_some()) => {
            Err(keys.metadata.error(&keys.key(SELECT_TAIL), "expected true, found false"))
        }
        _ => Ok(()),
    }
}
