//! One stored tensor: its names, type, shape and mapped bytes.

use std::path::Path;

use kernels::quant::QuantType;

use crate::bytes::MappedBytes;
use crate::error::{Error, Result};

/// A tensor where it lies in its file. Its bytes are exactly those its type and shape take.
///
/// The bytes of safetensors files need not be aligned to the type's size: cast with care.
#[derive(Clone, Debug)]
pub struct TensorView {
    /// Canonical name (`blk.0.attn_q.weight`); the file's own name where no table maps it.
    pub name: String,
    /// Name in the file (`model.layers.0.self_attn.q_proj.weight`).
    pub source_name: String,
    /// How the values are stored.
    pub ty: &'static QuantType,
    /// Row-major, outermost first: a matrix is `[rows, columns]`, rows contiguous.
    pub shape: Vec<usize>,
    bytes: MappedBytes,
}

impl TensorView {
    pub(crate) fn new(
        source_name: String,
        ty: &'static QuantType,
        shape: Vec<usize>,
        bytes: MappedBytes,
    ) -> Self {
        Self { name: source_name.clone(), source_name, ty, shape, bytes }
    }

    /// The stored bytes.
    pub fn data(&self) -> &[u8] {
        &self.bytes
    }

    /// The stored bytes with the map that holds them.
    pub fn bytes(&self) -> &MappedBytes {
        &self.bytes
    }

    /// The file the tensor lies in.
    pub fn path(&self) -> &Path {
        self.bytes.path()
    }

    /// Number of values.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// All values as f32, for the small tensors that are wanted so.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let dequantize = self.ty.dequantize.ok_or_else(|| self.unsupported_type())?;
        let mut values = vec![0.0; self.elements()];
        dequantize(self.data(), &mut values);
        Ok(values)
    }

    pub(crate) fn unsupported_type(&self) -> Error {
        let problem = format!("weights of type {} cannot be computed with yet", self.ty);
        Error::tensor(self.path(), &self.source_name, problem)
    }
}
