//! A safetensors file of its own.

use super::header::parse_beginning;
use crate::error::Result;
use crate::file_header::{FileHeaders, WeightFile};
use crate::tensor::TensorView;
use std::path::Path;

/// Opens one file and lists its tensors in the order of its header.
///
/// # Errors
/// If the file is unreadable or invalid.
pub fn open(path: &Path) -> Result<Vec<TensorView>> {
    open_with(path, &FileHeaders::default())
}

/// As [`open`], of a file that may be missing where its header is known.
pub(crate) fn open_with(path: &Path, headers: &FileHeaders) -> Result<Vec<TensorView>> {
    let file = WeightFile::open(path, headers)?;
    let (beginning, len) = file.beginning();
    let entries = parse_beginning(beginning, len, path)?;
    Ok(entries.into_iter().map(|entry| TensorView::new(&file, entry)).collect())
}
