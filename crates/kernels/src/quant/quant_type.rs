//! The descriptor of a storage type: its name, its size, and the functions that read and store it.

use crate::quant::block_format::{BlockFormat, dequantize, quantize};
use crate::quant::packing::Packing;

/// Whole quant blocks to values.
pub type Dequantize = fn(src: &[u8], dst: &mut [f32]);

/// Values to whole quant blocks. `importance`, as long as the values, says how much an error of
/// each counts; without it all count alike.
pub type Quantize = fn(src: &[f32], importance: Option<&[f32]>, dst: &mut [u8]);

/// How the values of one weight type are stored, and the functions that read them.
#[derive(Debug)]
pub struct QuantType {
    /// Name as users type it, lower case: `bf16`, `q4_k`.
    pub name: &'static str,
    /// `ggml_type` number in GGUF files; beyond those of all files for types of no GGUF file.
    pub gguf_id: u32,
    /// Values in one quant block (1 for plain floats).
    pub block_len: usize,
    /// Bytes of one quant block.
    pub block_bytes: usize,
    /// Whole blocks to f32, exactly as gguf-py does: the specification of the type.
    /// `src.len() / block_bytes * block_len == dst.len()`.
    pub dequantize: Option<Dequantize>,
    /// Quantises f32 values to whole blocks, with the scales of least error where the format leaves
    /// a choice. Without the feature `quantisers` only floats have it.
    pub quantize: Option<Quantize>,
    /// How blocks are packed for products with activations rounded to bytes.
    pub packing: Option<&'static Packing>,
}

impl PartialEq for QuantType {
    fn eq(&self, other: &Self) -> bool {
        self.gguf_id == other.gguf_id
    }
}

impl Eq for QuantType {}

impl QuantType {
    /// A type stored in blocks of `F`.
    pub(super) const fn of<F: BlockFormat<LEN, BYTES>, const LEN: usize, const BYTES: usize>(
        name: &'static str,
        gguf_id: u32,
    ) -> Self {
        Self {
            dequantize: Some(dequantize::<F, LEN, BYTES>),
            quantize: match cfg!(feature = "quantisers") {
                true => Some(quantize::<F, LEN, BYTES>),
                false => None,
            },
            packing: F::PACKING,
            ..Self::listed(name, gguf_id, LEN, BYTES)
        }
    }

    /// A type of which no more than its name, number and size is known.
    pub const fn listed(
        name: &'static str,
        gguf_id: u32,
        block_len: usize,
        block_bytes: usize,
    ) -> Self {
        let (dequantize, quantize, packing) = (None, None, None);
        Self { name, gguf_id, block_len, block_bytes, dequantize, quantize, packing }
    }

    /// Bytes that `values` values take, or `None` if they are not whole blocks or the
    /// product overflows.
    pub fn bytes_for(&self, values: usize) -> Option<usize> {
        if !values.is_multiple_of(self.block_len) {
            return None;
        }
        (values / self.block_len).checked_mul(self.block_bytes)
    }

    /// Whether weights of this type can be computed with.
    pub fn is_supported(&self) -> bool {
        self.dequantize.is_some()
    }

    /// Mean bits per value.
    pub fn bits_per_value(&self) -> f64 {
        self.block_bytes as f64 * 8.0 / self.block_len as f64
    }
}

impl std::fmt::Display for QuantType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// First number of the types in [`NATIVE`](super::NATIVE), beyond all of GGUF's.
pub(super) const NATIVE_IDS: u32 = 0x5afe_0100;
