//! F32, F16 and BF16: plain little-endian floats, blocks of one value.

use super::QuantType;
use super::fit::isa;
use crate::lanes::widen::{Widen, bf16_values, f16_values};
use crate::lanes::{Kernel, run_on};
use half::{bf16, f16};

/// 32-bit IEEE floats.
pub static F32: QuantType = QuantType {
    dequantize: Some(|src, dst| each(src, dst, f32::from_le_bytes)),
    quantize: Some(|src, _, dst| each_back(src, dst, f32::to_le_bytes)),
    ..QuantType::listed("f32", 0, 1, 4)
};

/// 16-bit IEEE floats.
pub static F16: QuantType = QuantType {
    dequantize: Some(|src, dst| run_on(isa(), Halves { src, dst })),
    quantize: Some(|src, _, dst| each_back(src, dst, |v| f16::from_f32(v).to_le_bytes())),
    ..QuantType::listed("f16", 1, 1, 2)
};

/// The upper 16 bits of 32-bit floats.
pub static BF16: QuantType = QuantType {
    dequantize: Some(|src, dst| run_on(isa(), Brains { src, dst })),
    quantize: Some(|src, _, dst| each_back(src, dst, |v| bf16::from_f32(v).to_le_bytes())),
    ..QuantType::listed("bf16", 30, 1, 2)
};

struct Brains<'a> {
    src: &'a [u8],
    dst: &'a mut [f32],
}

impl Kernel for Brains<'_> {
    #[inline(always)]
    fn run<L: Widen>(self) {
        bf16_values::<L>(self.src, self.dst);
    }
}

struct Halves<'a> {
    src: &'a [u8],
    dst: &'a mut [f32],
}

impl Kernel for Halves<'_> {
    #[inline(always)]
    fn run<L: Widen>(self) {
        f16_values::<L>(self.src, self.dst);
    }
}

fn each<const N: usize>(src: &[u8], dst: &mut [f32], read: impl Fn([u8; N]) -> f32) {
    let (values, rest) = src.as_chunks::<N>();
    assert!(rest.is_empty() && values.len() == dst.len(), "whole blocks only");
    for (out, &bytes) in dst.iter_mut().zip(values) {
        *out = read(bytes);
    }
}

fn each_back<const N: usize>(src: &[f32], dst: &mut [u8], write: impl Fn(f32) -> [u8; N]) {
    let (values, rest) = dst.as_chunks_mut::<N>();
    assert!(rest.is_empty() && values.len() == src.len(), "whole blocks only");
    for (out, &value) in values.iter_mut().zip(src) {
        *out = write(value);
    }
}
