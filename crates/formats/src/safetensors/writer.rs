//! Writing safetensors files.

use std::path::Path;

use indexmap::IndexMap;
use kernels::quant::QuantType;
use serde_json::json;

use super::dtype;
use crate::error::{Error, Result};
use crate::layout;
use crate::stream::TensorStream;

/// Data start on a cache line, so that mapped weights can be read with aligned loads.
const DATA_ALIGNMENT: usize = 64;

/// A safetensors file being planned: tensors first, then their bytes as a stream.
#[derive(Debug, Default)]
pub struct SafetensorsWriter {
    header: serde_json::Map<String, serde_json::Value>,
    plan: IndexMap<String, usize>,
    data_bytes: usize,
}

impl SafetensorsWriter {
    /// A file without tensors, whose metadata name PyTorch's layout, which some libraries require.
    pub fn new() -> Self {
        let mut writer = Self::default();
        writer.header.insert("__metadata__".into(), json!({"format": "pt"}));
        writer
    }

    /// Plans the next tensor. `shape` is row-major, outermost first.
    ///
    /// # Errors
    /// If the type has no name in safetensors files, or the size overflows.
    pub fn plan(&mut self, name: &str, ty: &'static QuantType, shape: &[usize]) -> Result<()> {
        let error = |problem: String| Error::tensor(Path::new("safetensors output"), name, problem);
        let dtype = dtype::dtype_of(ty)
            .ok_or_else(|| error(format!("type {ty} has no name in safetensors files")))?;
        let bytes = layout::tensor_bytes(ty, shape).map_err(error)?;
        let begin = self.data_bytes;
        self.data_bytes = begin.checked_add(bytes).ok_or_else(|| error("too large".into()))?;
        let entry =
            json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, self.data_bytes]});
        match self.header.insert(name.to_owned(), entry) {
            None => self.plan.insert(name.to_owned(), bytes),
            Some(_) => return Err(error("planned twice".into())),
        };
        Ok(())
    }

    /// Writes the header to `path`; the tensors' bytes follow through the stream.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn create(self, path: &Path) -> Result<TensorStream> {
        let mut json = serde_json::Value::Object(self.header).to_string().into_bytes();
        json.resize((8 + json.len()).next_multiple_of(DATA_ALIGNMENT) - 8, b' ');
        let mut header = (json.len() as u64).to_le_bytes().to_vec();
        header.append(&mut json);
        TensorStream::create(path, &header, self.plan.into_iter().collect(), 1)
    }
}
