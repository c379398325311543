//! The index over the positions of latent attention in GGUF files.

use super::super::fields::GgufKeys;
use super::super::rows::{self, FieldSource};
use crate::config::gguf::tensors::find;
use crate::config::schema::Hyperparameters;
use crate::config::schema::IndexConfig;
use crate::error::Result;
use crate::gguf::GgufFile;
use crate::layers::RopeLayout;

/// Reads the index, if the file has the tensors of one: files of other writers may leave it out.
pub(crate) fn read(
    keys: &GgufKeys,
    file: &GgufFile,
    layout: RopeLayout,
    model: &mut Hyperparameters,
) -> Result<()> {
    let has_index = |layer| find(file, &format!("blk.{layer}.indexer.attn_k.weight")).is_some();
    let own: Vec<bool> = (0..model.layers).map(has_index).collect();
    let any = own.contains(&true);
    if !any && !file.tensors().is_empty() {
        return Ok(());
    }
    let layers = if any { own } else { vec![true; model.layers] };
    model.index = Some(IndexConfig { layout, layers, ..IndexConfig::default() });
    rows::read(rows::INDEX, FieldSource::Gguf(keys), model)
}
