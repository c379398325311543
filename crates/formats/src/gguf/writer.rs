//! Writing GGUF files, version 3.

use std::path::Path;

use indexmap::IndexMap;
use kernels::quant::{self, QuantType};

use super::parse::DEFAULT_ALIGNMENT;
use super::value::{Value, write_string};
use crate::error::{Error, Result};
use crate::layout;
use crate::stream::TensorStream;

/// A GGUF file being planned: metadata and tensors first, then their bytes as a stream.
#[derive(Debug, Default)]
pub struct GgufWriter {
    pub(super) metadata: IndexMap<String, Value>,
    pub(super) tensors: IndexMap<String, Planned>,
}

#[derive(Debug)]
pub(super) struct Planned {
    ty: &'static QuantType,
    shape: Vec<usize>,
    pub bytes: usize,
}

impl GgufWriter {
    /// A file with no metadata and no tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a metadata key; a later value replaces an earlier one in its place.
    pub fn set(&mut self, key: &str, value: Value) {
        self.metadata.insert(key.to_owned(), value);
    }

    /// Plans the next tensor. `shape` is row-major, outermost first.
    ///
    /// # Errors
    /// If rows are not whole blocks of the type, or the size overflows.
    pub fn plan(&mut self, name: &str, ty: &'static QuantType, shape: &[usize]) -> Result<()> {
        let error = |problem: String| Error::tensor(Path::new("GGUF output"), name, problem);
        if quant::by_gguf_id(ty.gguf_id).is_none() {
            return Err(error(format!("type {ty} has no number in GGUF files")));
        }
        let bytes = layout::tensor_bytes(ty, shape).map_err(error)?;
        let planned = Planned { ty, shape: shape.to_vec(), bytes };
        match self.tensors.insert(name.to_owned(), planned) {
            None => Ok(()),
            Some(_) => Err(error("planned twice".into())),
        }
    }

    /// Writes the header to `path`; the tensors' bytes follow through the stream.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn create(self, path: &Path) -> Result<TensorStream> {
        let header = self.header();
        let plan = self.tensors.into_iter().map(|(name, t)| (name, t.bytes)).collect();
        TensorStream::create(path, &header, plan, DEFAULT_ALIGNMENT)
    }

    fn header(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        let custom = |key: &str| key == "general.alignment";
        let entries = self.metadata.iter().filter(|(key, _)| !custom(key));
        out.extend((entries.clone().count() as u64).to_le_bytes());
        for (key, value) in entries {
            write_string(&mut out, key);
            value.write(&mut out);
        }
        let mut offset = 0;
        for (name, tensor) in &self.tensors {
            tensor.describe(name, offset, &mut out);
            offset += tensor.bytes.next_multiple_of(DEFAULT_ALIGNMENT);
        }
        out
    }
}

impl Planned {
    fn describe(&self, name: &str, offset: usize, out: &mut Vec<u8>) {
        write_string(out, name);
        out.extend((self.shape.len() as u32).to_le_bytes());
        for &dim in self.shape.iter().rev() {
            out.extend((dim as u64).to_le_bytes());
        }
        out.extend(self.ty.gguf_id.to_le_bytes());
        out.extend((offset as u64).to_le_bytes());
    }
}
