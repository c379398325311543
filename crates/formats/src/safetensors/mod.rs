//! Safetensors files: one, or many with `model.safetensors.index.json`.

mod dtype;
mod header;
mod index;
mod writer;

use std::path::Path;

use crate::bytes::map_file;
use crate::error::Result;
use crate::tensor::TensorView;

pub use header::parse;
pub(crate) use index::shards_below;
pub use index::{INDEX_FILE, open_sharded};
pub use writer::SafetensorsWriter;

/// Opens one file and lists its tensors in the order of its header.
///
/// # Errors
/// If the file is unreadable or invalid.
pub fn open(path: &Path) -> Result<Vec<TensorView>> {
    let map = map_file(path)?;
    let entries = parse(&map, path)?;
    Ok(entries.into_iter().map(|entry| TensorView::new(&map, entry)).collect())
}
