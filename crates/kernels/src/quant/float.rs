//! F32, F16 and BF16: plain little-endian floats, blocks of one value.

use crate::lanes::widen::{Widen, bf16_values, f16_values};
use crate::lanes::{Kernel, run_on};
use crate::quant::block_format::isa;
use crate::quant::quant_type::QuantType;
use half::{bf16, f16};

/// 32-bit IEEE floats.
pub static F32: QuantType = QuantType {
    dequantize: Some(read_f32),
    quantize: Some(|src, _, dst| each_back(src, dst, f32::to_le_bytes)),
    ..QuantType::listed("f32", 0, 1, 4)
};

/// 16-bit IEEE floats.
pub static F16: QuantType = QuantType {
    dequantize: Some(|src, dst| run_on(isa(), WidenFloats::<true> { src, dst })),
    quantize: Some(|src, _, dst| each_back(src, dst, |v| f16::from_f32(v).to_le_bytes())),
    ..QuantType::listed("f16", 1, 1, 2)
};

/// The upper 16 bits of 32-bit floats.
pub static BF16: QuantType = QuantType {
    dequantize: Some(|src, dst| run_on(isa(), WidenFloats::<false> { src, dst })),
    quantize: Some(|src, _, dst| each_back(src, dst, |v| bf16::from_f32(v).to_le_bytes())),
    ..QuantType::listed("bf16", 30, 1, 2)
};

/// Floats of 16 bits to f32: F16 where `HALF`, else BF16.
struct WidenFloats<'a, const HALF: bool> {
    src: &'a [u8],
    dst: &'a mut [f32],
}

impl<const HALF: bool> Kernel for WidenFloats<'_, HALF> {
    #[inline(always)]
    fn run<L: Widen>(self) {
        match HALF {
            true => f16_values::<L>(self.src, self.dst),
            false => bf16_values::<L>(self.src, self.dst),
        }
    }
}

fn read_f32(src: &[u8], dst: &mut [f32]) {
    let (values, rest) = src.as_chunks();
    assert!(rest.is_empty() && values.len() == dst.len(), "whole values only");
    for (out, &bytes) in dst.iter_mut().zip(values) {
        *out = f32::from_le_bytes(bytes);
    }
}

fn each_back<const N: usize>(src: &[f32], dst: &mut [u8], write: impl Fn(f32) -> [u8; N]) {
    let (values, rest) = dst.as_chunks_mut::<N>();
    assert!(rest.is_empty() && values.len() == src.len(), "whole blocks only");
    for (out, &value) in values.iter_mut().zip(src) {
        *out = write(value);
    }
}
