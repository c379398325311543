//! A safetensors file of its own.

use super::header::parse;
use crate::bytes::map_file;
use crate::error::Result;
use crate::tensor::TensorView;
use std::path::Path;

/// Opens one file and lists its tensors in the order of its header.
///
/// # Errors
/// If the file is unreadable or invalid.
pub fn open(path: &Path) -> Result<Vec<TensorView>> {
    let map = map_file(path)?;
    let entries = parse(&map, path)?;
    Ok(entries.into_iter().map(|entry| TensorView::new(&map, entry)).collect())
}
