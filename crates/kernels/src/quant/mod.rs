//! Storage types of weights: one static descriptor and one file per type.
//!
//! A type is a run of `block_len` values stored in `block_bytes` bytes. Every type that appears in
//! GGUF files is known here by name and size, so that any file can be listed; a type whose
//! `dequantize` is `None` can be listed but not yet executed. Types that only safetensors
//! checkpoints have ([`NATIVE`]) are the types that their tensors become when they are read.

mod fit;
mod float;
pub mod fp8;
pub(crate) mod grids;
mod grouped;
mod iq1;
mod iq2;
mod iq3;
mod iq4;
mod mxfp4;
mod nvfp4;
mod packing;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_k;
mod q5_0;
mod q5_k;
mod q6_k;
mod q8_0;
mod ternary;

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
    /// a choice.
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
    const fn of<F: BlockFormat<LEN, BYTES>, const LEN: usize, const BYTES: usize>(
        name: &'static str,
        gguf_id: u32,
    ) -> Self {
        Self {
            dequantize: Some(dequantize::<F, LEN, BYTES>),
            quantize: Some(fit::quantize::<F, LEN, BYTES>),
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

/// How a type stores values in a quant block.
trait BlockFormat<const LEN: usize, const BYTES: usize> {
    /// How blocks are packed, if there are products with their codes.
    const PACKING: Option<&'static Packing> = None;

    /// Restores the values of `block`. `#[inline(always)]`, so that it is compiled for the
    /// instruction set of its caller.
    fn restore<L: Widen>(block: &[u8; BYTES], out: &mut [f32; LEN]);

    /// Stores `values` in `block`, which is zero. `#[inline(always)]` as well.
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; BYTES]);
}

/// Restores whole quant blocks with the instructions that the CPU has.
fn dequantize<F: BlockFormat<LEN, BYTES>, const LEN: usize, const BYTES: usize>(
    src: &[u8],
    dst: &mut [f32],
) {
    run_on(fit::isa(), RestoreBlocks::<F, LEN, BYTES> { src, dst, format: PhantomData });
}

struct RestoreBlocks<'a, F, const LEN: usize, const BYTES: usize> {
    src: &'a [u8],
    dst: &'a mut [f32],
    format: PhantomData<F>,
}

impl<F: BlockFormat<LEN, BYTES>, const LEN: usize, const BYTES: usize> Kernel
    for RestoreBlocks<'_, F, LEN, BYTES>
{
    #[inline(always)]
    fn run<L: Widen>(self) {
        for (block, out) in self.src.as_chunks().0.iter().zip(self.dst.as_chunks_mut().0) {
            F::restore::<L>(block, out);
        }
    }
}

impl std::fmt::Display for QuantType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

use crate::lanes::widen::Widen;
use crate::lanes::{Kernel, LANES, run_on};
use fit::WeightedBlock;
pub use float::{BF16, F16, F32};
pub use grouped::{INT4, INT8};
pub use iq1::{IQ1_M, IQ1_S};
pub(crate) use iq2::LEVELS as IQ2_LEVELS;
pub use iq2::{IQ2_S, IQ2_XS, IQ2_XXS};
pub use iq3::{IQ3_S, IQ3_XXS};
pub(crate) use iq3::{LEVELS_S as IQ3_S_LEVELS, LEVELS_XXS as IQ3_XXS_LEVELS};
pub(crate) use iq4::LEVELS as IQ4_LEVELS;
pub use iq4::{IQ4_NL, IQ4_XS};
pub(crate) use mxfp4::DOUBLED as FLOATS_DOUBLED;
pub use mxfp4::MXFP4;
pub use nvfp4::NVFP4;
use packing::packing;
pub use packing::{BLOCK, BlockScales, CodeLayout, Packing, RowSpan, SPAN};
pub use q2_k::Q2_K;
pub use q3_k::Q3_K;
pub use q4_0::{Q4_0, Q4_1};
pub use q4_k::Q4_K;
pub use q5_0::{Q5_0, Q5_1};
pub use q5_k::Q5_K;
pub use q6_k::Q6_K;
pub use q8_0::Q8_0;
use std::marker::PhantomData;
pub use ternary::{TQ1_0, TQ2_0};

/// The f16 in the first two bytes, as f32.
#[inline(always)]
fn read_f16(bytes: &[u8]) -> f32 {
    half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// `scale * code - min` of each code, rounded after both steps.
#[inline(always)]
fn restore_line<L: Widen>(codes: &[i8], scale: f32, min: f32, out: &mut [f32]) {
    let (scale, min) = (L::splat(scale), L::splat(min));
    let codes = codes.as_chunks::<LANES>().0;
    for (codes, out) in codes.iter().zip(out.as_chunks_mut().0) {
        L::load_i8(codes).mul(scale).sub(min).store(out);
    }
}

/// `codes` less `zero`.
#[inline(always)]
fn centred(codes: &mut [u8], zero: u8) -> &[i8] {
    for code in &mut *codes {
        *code = code.wrapping_sub(zero);
    }
    bytemuck::cast_slice(codes)
}

/// The bits of the 16-bit value in the first two bytes.
#[inline(always)]
fn read_bits(bytes: &[u8]) -> u16 {
    u16::from_le_bytes([bytes[0], bytes[1]])
}

/// The nibbles of `bytes` as codes: the low ones first, then the high ones.
#[inline(always)]
fn nibble_codes(bytes: &[u8], codes: &mut [u8]) {
    codes.fill(0);
    let (low, high) = codes.split_at_mut(bytes.len());
    add_bits(bytes, (0, 15, 0), low);
    add_bits(bytes, (4, 15, 0), high);
}

/// Adds the bits `mask` of each byte, shifted `down` and then `up`, to a code that lacks them, for
/// eight bytes at a time; lengths are multiples of eight.
#[inline(always)]
fn add_bits(bytes: &[u8], (down, mask, up): (u32, u8, u32), codes: &mut [u8]) {
    let mask = u64::from_le_bytes([mask; 8]);
    for (bytes, codes) in bytes.as_chunks().0.iter().zip(codes.as_chunks_mut().0) {
        let bits = (u64::from_le_bytes(*bytes) >> down & mask) << up;
        *codes = (u64::from_le_bytes(*codes) | bits).to_le_bytes();
    }
}

/// First number of the types in [`NATIVE`], beyond all of GGUF's.
const NATIVE_IDS: u32 = 0x5afe_0100;

/// Types of native checkpoints, which store a matrix of codes and another of scales: a block joins
/// both. No file holds them in this form.
pub static NATIVE: &[&QuantType] =
    &[&fp8::FP8_128, &fp8::FP8_64, &fp8::FP8_32, &fp8::FP8_16, &fp8::FP8_8, &INT4, &INT8, &NVFP4];

/// Every type a GGUF file may hold, in the order of their numbers.
pub static TYPES: &[&QuantType] = &[
    &F32,
    &F16,
    &Q4_0,
    &Q4_1,
    &Q5_0,
    &Q5_1,
    &Q8_0,
    &QuantType::listed("q8_1", 9, 32, 36),
    &Q2_K,
    &Q3_K,
    &Q4_K,
    &Q5_K,
    &Q6_K,
    &QuantType::listed("q8_k", 15, 256, 292),
    &IQ2_XXS,
    &IQ2_XS,
    &IQ3_XXS,
    &IQ1_S,
    &IQ4_NL,
    &IQ3_S,
    &IQ2_S,
    &IQ4_XS,
    &QuantType::listed("i8", 24, 1, 1),
    &QuantType::listed("i16", 25, 1, 2),
    &QuantType::listed("i32", 26, 1, 4),
    &QuantType::listed("i64", 27, 1, 8),
    &QuantType::listed("f64", 28, 1, 8),
    &IQ1_M,
    &BF16,
    &TQ1_0,
    &TQ2_0,
    &MXFP4,
];

/// The type with this `ggml_type` number.
pub fn by_gguf_id(id: u32) -> Option<&'static QuantType> {
    TYPES.iter().copied().find(|t| t.gguf_id == id)
}

/// The type with this name, in any case.
pub fn by_name(name: &str) -> Option<&'static QuantType> {
    TYPES.iter().copied().find(|t| t.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests;
