//! GGUF files, version 2 and 3, whole or split into parts.

mod cursor;
mod metadata;
mod parse;
mod pre_tokenizer;
mod split;
mod split_writer;
mod turn_ends;
mod types;
mod value;
mod writer;

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::file_header::{FileHeaders, WeightFile};
use crate::tensor::TensorView;

pub(crate) use cursor::Cursor;
pub use metadata::Metadata;
pub use parse::{Header, parse};
pub(crate) use pre_tokenizer::missing_pre_tokenizer;
use split::open_part;
pub(crate) use split::parts_of;
pub use split::{model_name, part_of};
pub use split_writer::SplitStream;
pub use turn_ends::TurnEnds;
pub use value::{Array, Strings, Value};
pub use writer::GgufWriter;

/// Key of the number of token types that a vocabulary is for.
pub const TOKEN_TYPES: &str = "tokenizer.ggml.token_type_count";

/// An open GGUF model: the metadata of its first part and the tensors of all parts.
///
/// A file without tensors (a vocabulary) opens too.
#[derive(Debug)]
pub struct GgufFile {
    /// Version of the format, 2 or 3.
    pub version: u32,
    metadata: Metadata,
    tensors: Vec<TensorView>,
    /// Paths of all parts in order.
    pub parts: Vec<PathBuf>,
}

impl GgufFile {
    /// Opens the file at `path`. Any part of a split model opens the whole model.
    ///
    /// # Errors
    /// If a part is missing, unreadable or invalid.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, &FileHeaders::default())
    }

    /// As [`open`](Self::open), of a model of which parts may be missing whose headers are known.
    pub(crate) fn open_with(path: &Path, headers: &FileHeaders) -> Result<Self> {
        let (file, header) = open_part(path, headers)?;
        match split::place(path, &header)? {
            None => Ok(Self::from_parts(vec![(file, header)])),
            Some(place) => split::open_all(path, &place, headers).map(Self::from_parts),
        }
    }

    /// Path of the first (usually the only) part.
    pub fn path(&self) -> &Path {
        self.metadata.path()
    }

    /// Metadata of the first part.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in the order of the parts.
    pub fn tensors(&self) -> &[TensorView] {
        &self.tensors
    }

    /// `parts` is not empty, and each header was parsed from its file.
    fn from_parts(parts: Vec<(WeightFile, Header)>) -> Self {
        let paths = parts.iter().map(|(file, _)| file.path().to_path_buf()).collect();
        let mut tensors = Vec::new();
        let mut first = None;
        for (file, header) in parts {
            tensors.extend(header.tensors.into_iter().map(|entry| TensorView::new(&file, entry)));
            first.get_or_insert((header.version, header.metadata));
        }
        let (version, metadata) = first.expect("a model has at least one part");
        Self { version, metadata, tensors, parts: paths }
    }
}
