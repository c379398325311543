//! Storage types of weights: one static descriptor and one file per type.
//!
//! A type is a run of `block_len` values stored in `block_bytes` bytes. Every type that appears in
//! GGUF files is known here by name and size, so that any file can be listed; a type whose
//! `dequantize` is `None` can be listed but not yet executed. Types that only safetensors
//! checkpoints have ([`NATIVE`]) are the types that their tensors become when they are read.

mod block_format;
mod codes;
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
mod nvfp4_64;
mod packing;
mod q1_0;
mod q2_0;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_k;
mod q5_0;
mod q5_k;
mod q6_k;
mod q8_0;
mod quant_type;
mod ternary;

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
pub use nvfp4::NVFP4_32;
pub use nvfp4_64::NVFP4;
pub use packing::{BLOCK, BlockScales, CodeLayout, Packing, RowSpan, SPAN};
pub use q1_0::Q1_0;
pub use q2_0::Q2_0;
pub use q2_k::Q2_K;
pub use q3_k::Q3_K;
pub use q4_0::{Q4_0, Q4_1};
pub use q4_k::Q4_K;
pub use q5_0::{Q5_0, Q5_1};
pub use q5_k::Q5_K;
pub use q6_k::Q6_K;
pub use q8_0::Q8_0;
pub use quant_type::{Dequantize, QuantType, Quantize};
pub use ternary::{TQ1_0, TQ2_0};

/// Types of native checkpoints, which store a matrix of codes and another of scales: a block joins
/// both. No file holds them in this form.
pub static NATIVE: &[&QuantType] = &[
    &fp8::FP8_128,
    &fp8::FP8_64,
    &fp8::FP8_32,
    &fp8::FP8_16,
    &fp8::FP8_8,
    &INT4,
    &INT8,
    &NVFP4_32,
];

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
    &NVFP4,
    &Q1_0,
    &Q2_0,
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
