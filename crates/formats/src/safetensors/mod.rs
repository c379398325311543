//! Safetensors files: one, or many with `model.safetensors.index.json`.

mod dtype;
mod header;
mod index;
mod writer;

use std::path::Path;
use std::sync::Arc;

use base::Mmap;

use crate::bytes::{MappedBytes, map_file};
use crate::error::Result;
use crate::tensor::TensorView;

pub use header::{SafetensorsTensorInfo, parse};
pub use index::{INDEX_FILE, open_sharded};
pub use writer::SafetensorsWriter;

/// Opens one file and lists its tensors in the order of its header.
pub fn open(path: &Path) -> Result<Vec<TensorView>> {
    let map = map_file(path)?;
    let infos = parse(&map, path)?;
    Ok(infos.into_iter().map(|info| view(&map, info)).collect())
}

fn view(map: &Arc<Mmap>, info: SafetensorsTensorInfo) -> TensorView {
    let bytes = MappedBytes::new(map.clone(), info.range).expect("the parser checked the range");
    TensorView::new(info.name, info.ty, info.shape, bytes)
}
