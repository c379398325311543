//! MXFP4: 32 four-bit floats (one sign, two exponent, one mantissa bit) under a power of two.
//! Follows the OCP Microscaling Formats specification 1.0 and `dequantize_row_mxfp4` of ggml.

use super::fit::{WeightedGroup, relative};
use super::q4_0::{nibbles, pack_nibbles};
use crate::lanes::widen::Widen;
use crate::lanes::{Kernel, run_on};
use crate::quant::block_format::isa;
use crate::quant::codes::nibble_codes;
use crate::quant::packing::{BlockScales, CodeLayout, Packing, packing};
use crate::quant::quant_type::QuantType;

const LEN: usize = 32;
const BYTES: usize = 17;
/// The largest exponent under which all values are finite in f32.
const MAX_EXPONENT: u8 = 252;

/// Twice the values of the codes, so that all are whole.
pub(crate) const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// 32 four-bit floats: `value = 2^(e - 128) * DOUBLED[q]`.
pub static MXFP4: QuantType = QuantType {
    dequantize: Some(dequantize),
    quantize: if cfg!(feature = "quantisers") { Some(quantize) } else { None },
    packing: Some(&PACKING),
    ..QuantType::listed("mxfp4", 39, LEN, BYTES)
};

/// A power of two is a BF16 value.
static PACKING: Packing = packing! {
    code_layout: CodeLayout::Floats,
    block: (LEN, BYTES),
    codes: |block, codes| nibble_codes(&block[1..], codes),
    scales: |block| {
        let scale = (half_scale(block[0]).to_bits() >> 16) as u16;
        BlockScales { scale, ..BlockScales::default() }
    },
};

/// `2^(e - 128)`.
#[inline(always)]
fn half_scale(e: u8) -> f32 {
    match e {
        // Below the normal numbers of f32.
        0 | 1 => f32::from_bits(0x0020_0000 << e),
        _ => f32::from_bits(u32::from(e - 1) << 23),
    }
}

fn dequantize(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(BYTES).zip(dst.chunks_exact_mut(LEN)) {
        let scale = half_scale(block[0]);
        nibbles(&block[1..], out, |q| scale * f32::from(DOUBLED[usize::from(q)]));
    }
}

/// The code nearest to `value`, in units of the scale; of two as near the smaller magnitude.
#[inline(always)]
fn code(value: f32) -> u8 {
    let middles = DOUBLED[..8].windows(2).map(|pair| f32::from(pair[0] + pair[1]) / 2.0);
    let magnitude = middles.filter(|&middle| value.abs() > middle).count() as u8;
    // Nothing is stored as minus zero.
    if value < 0.0 && magnitude > 0 { magnitude | 8 } else { magnitude }
}

/// Codes under the scale of `e`, and the error they leave in units of the scale of `unit`.
#[inline(always)]
fn round(group: WeightedGroup<'_, LEN>, e: u8, unit: u8) -> ([u8; LEN], f32) {
    // A double holds every quotient of a value and a scale.
    let (scale, unit) = (f64::from(half_scale(e)), f64::from(half_scale(unit)));
    let codes = group.values.map(|v| code((f64::from(v) / scale) as f32));
    let restored = codes.map(|q| f64::from(DOUBLED[usize::from(q)]) * scale / unit);
    let values = group.values.map(|v| (f64::from(v) / unit) as f32);
    let scaled = WeightedGroup { values: &values, weights: group.weights };
    (codes, scaled.error(|i| restored[i] as f32))
}

/// The exponents worth trying, the one under which the largest magnitude fits first: a scale
/// below may lose more on it and less on all others.
#[inline(always)]
fn exponents(group: WeightedGroup<'_, LEN>) -> [u8; 3] {
    let most = group.values.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let fitting = (most.to_bits() >> 23) as u8;
    [1, 2, 3].map(|below| fitting.saturating_sub(below).min(MAX_EXPONENT))
}

fn quantize(src: &[f32], importance: Option<&[f32]>, dst: &mut [u8]) {
    run_on(isa(), QuantizeMxfp4 { src, importance, dst });
}

struct QuantizeMxfp4<'a> {
    src: &'a [f32],
    importance: Option<&'a [f32]>,
    dst: &'a mut [u8],
}

impl Kernel for QuantizeMxfp4<'_> {
    #[inline(always)]
    fn run<L: Widen>(self) {
        let blocks = self.src.as_chunks::<LEN>().0.iter().zip(self.dst.chunks_exact_mut(BYTES));
        for (index, (values, block)) in blocks.enumerate() {
            let weigh = |all: &[f32]| relative(&all[index * LEN..][..LEN]);
            let weights = self.importance.map_or([1.0; LEN], weigh);
            let values = values.map(|v| if v.is_finite() { v } else { 0.0 });
            store(WeightedGroup { values: &values, weights: &weights }, block);
        }
    }
}

#[inline(always)]
fn store(group: WeightedGroup<'_, LEN>, block: &mut [u8]) {
    let exponents = exponents(group);
    let mut least = f32::INFINITY;
    for e in exponents {
        let (codes, error) = round(group, e, exponents[0]);
        if error < least {
            least = error;
            block[0] = e;
            pack_nibbles(&codes, &mut block[1..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_nearest_to_its_value() {
        for q in (0..8).chain(9..16) {
            assert_eq!(code(f32::from(DOUBLED[usize::from(q)])), q);
        }
        assert_eq!((code(-0.4), code(1e30), code(-1e30)), (0, 7, 15));
    }

    #[test]
    fn the_whole_range_of_f32_is_held() {
        for value in [3e38, 1.0, 1e-30, f32::MIN_POSITIVE, 6e-39] {
            let mut bytes = [0; BYTES];
            let mut back = [0.0; LEN];
            quantize(&[value; LEN], None, &mut bytes);
            dequantize(&bytes, &mut back);
            assert!(back.iter().all(|b| b.is_finite()), "{value}");
            assert!((back[0] / value - 1.0).abs() < 0.2, "{value}: {}", back[0]);
        }
    }
}
