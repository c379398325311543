//! Safetensors files: one, or many with `model.safetensors.index.json`.

mod dtype;
mod file;
mod header;
mod index;
mod writer;

pub use file::open;
pub use header::parse;
pub(crate) use index::shards_below;
pub use index::{INDEX_FILE, open_sharded};
pub use writer::SafetensorsWriter;
