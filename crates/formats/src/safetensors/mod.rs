//! Safetensors files: one, or many with `model.safetensors.index.json`.

mod dtype;
mod file;
mod header;
mod index;
mod writer;

pub use file::open;
pub use header::parse;
pub use index::INDEX_FILE;
pub(crate) use index::{open_sharded, shards, shards_below};
pub use writer::SafetensorsWriter;
