//! NVFP4 of safetensors: 16 four-bit floats (one sign, two exponent, one mantissa bit) under an
//! E4M3 scale, which is under one f32 scale of the whole matrix.
//!
//! Files have the matrix's scale either as a factor (`weight_scale_2` of ModelOpt) or as a divisor
//! (`weight_global_scale` of compressed-tensors). Both packages first scale the E4M3 scale in f32,
//! then multiply the code with the result: `value = code * (e4m3 * factor)` or
//! `value = code * (e4m3 / divisor)`, each with one rounding per step. [`dequantize`] does the
//! same, so its values are those of the packages bit for bit. Products with bytes have the order of
//! [`SuperFloats`](CodeLayout::SuperFloats), with the inverse of a divisor as factor.

use super::fp8;
use super::mxfp4::DOUBLED;
use super::q4_0::nibbles;
use crate::quant::codes::nibble_codes;
use crate::quant::packing::{BlockScales, CodeLayout, Packing, packing};
use crate::quant::quant_type::{NATIVE_IDS, QuantType};

const LEN: usize = 32;
const BYTES: usize = 7 + LEN / 2;

/// 32 four-bit floats: the matrix's scale in f32, a byte that is not zero if that scale divides,
/// the E4M3 scales of both halves, then code `i` in the low nibble of byte `i` and code `i + 16` in
/// its high nibble. All blocks of a row have the same first five bytes.
pub static NVFP4_32: QuantType = QuantType {
    dequantize: Some(dequantize),
    packing: Some(&PACKING),
    ..QuantType::listed("nvfp4_32", NATIVE_IDS + 10, LEN, BYTES)
};

static PACKING: Packing = packing! {
    code_layout: CodeLayout::SuperFloats,
    block: (LEN, BYTES),
    codes: |block, codes| nibble_codes(&block[7..], codes),
    scales: |block| {
        // Codes are doubled, so that all are whole.
        let wide = if divides(block) { 0.5 / outer(block) } else { 0.5 * outer(block) };
        let mut scales = BlockScales { wide, ..BlockScales::default() };
        (scales.scales[0], scales.scales[1]) = (block[5] as i8, block[6] as i8);
        scales
    },
};

/// The scale of the matrix.
#[inline(always)]
fn outer(block: &[u8]) -> f32 {
    f32::from_le_bytes([block[0], block[1], block[2], block[3]])
}

#[inline(always)]
fn divides(block: &[u8]) -> bool {
    block[4] != 0
}

fn dequantize(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.as_chunks::<BYTES>().0.iter().zip(dst.as_chunks_mut::<LEN>().0) {
        let scales = [block[5], block[6]].map(|code| match divides(block) {
            true => fp8::value(code) / outer(block),
            false => fp8::value(code) * outer(block),
        });
        nibbles(&block[7..], out, |q| 0.5 * f32::from(DOUBLED[usize::from(q)]));
        for (half, scale) in out.chunks_exact_mut(LEN / 2).zip(scales) {
            half.iter_mut().for_each(|value| *value *= scale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_codes_under_a_scale_that_is_rounded_first() {
        // The codes of 2.25 and 0.40625.
        let (scales, numbers) = ([0x41, 0x2d], [2.25f32, 0.40625]);
        for (outer, divides) in [(0.0123f32, 0u8), (2688.1, 1)] {
            let mut block = outer.to_le_bytes().to_vec();
            block.push(divides);
            block.extend(scales);
            block.extend((0..16u8).map(|i| i | (15 - i) << 4));
            let mut values = [0.0; LEN];
            dequantize(&block, &mut values);
            let [low, high] = numbers.map(|n| if divides == 1 { n / outer } else { n * outer });
            let levels = [0.0f32, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
            for (i, level) in levels.into_iter().enumerate() {
                assert_eq!((values[i], values[i + 8]), (level * low, -level * low));
                assert_eq!((values[31 - i], values[23 - i]), (level * high, -level * high));
            }
        }
    }

    #[test]
    fn a_divisor_is_packed_as_its_inverse() {
        let mut block = [0; BYTES];
        block[..4].copy_from_slice(&3.0f32.to_le_bytes());
        let mut span = super::super::RowSpan::EMPTY;
        for (divides, factor) in [(0, 1.5), (1, 0.5 / 3.0)] {
            block[4] = divides;
            (PACKING.unpack)(crate::Isa::SCALAR, &block, &mut span);
            assert_eq!(span.scales[0].wide, factor);
        }
    }
}
