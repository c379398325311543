//! NVFP4 of GGUF files: 64 four-bit floats (one sign, two exponent, one mantissa bit) in four runs
//! of 16, each under an unsigned E4M3 scale. Follows `dequantize_row_nvfp4` and, where values are
//! quantised, `quantize_row_nvfp4_ref` of ggml.
//!
//! A scale has no sign, so its highest bit is nothing; code 0x7f, NaN in E4M3, is zero.

use super::fit::WeightedBlock;
use super::mxfp4::DOUBLED;
use super::q4_0::{nibbles, pack_nibbles};
use crate::lanes::widen::{Widen, e4m3};
use crate::quant::block_format::BlockFormat;
use crate::quant::codes::nibble_codes;
use crate::quant::packing::{BlockScales, CodeLayout, Packing, packing};
use crate::quant::quant_type::QuantType;

const LEN: usize = 64;
const BYTES: usize = 36;
/// Values under one scale.
const RUN: usize = 16;
/// Scales of a block, which come first.
const RUNS: usize = LEN / RUN;
/// The code of the largest scale, 448.
const TOP: u8 = 0x7e;

/// 64 four-bit floats with an E4M3 scale for each 16: `value = scale / 2 * DOUBLED[q]`.
pub static NVFP4: QuantType = QuantType::of::<Nvfp4Blocks, LEN, BYTES>("nvfp4", 40);

/// The E4M3 code of a scale without its highest bit, and zero for 0x7f.
#[inline(always)]
fn unsigned(code: u8) -> u8 {
    if code == 0x7f { 0 } else { code & 0x7f }
}

/// The nibbles of each run.
#[inline(always)]
fn runs(block: &[u8; BYTES]) -> &[[u8; RUN / 2]] {
    block[RUNS..].as_chunks().0
}

/// Half of the value of a scale, since codes are doubled.
#[inline(always)]
fn half_scale(code: u8) -> f32 {
    0.5 * e4m3(unsigned(code))
}

/// The code of the scale nearest to `value`: mantissas are rounded half up, and all from 256 on
/// become the largest scale.
#[inline(always)]
fn scale_code(value: f32) -> u8 {
    // 2^-6, the smallest normal number, and the bits of half of the lowest exponent.
    let (normal, bias) = (0.015625, 120 << 23);
    if value < normal {
        return ((value * 512.0 + 0.5) as u8).min(7);
    }
    let code = ((value.min(448.0).to_bits() - bias) >> 19).div_ceil(2) as u8;
    if code < 15 << 3 { code } else { TOP }
}

/// The code of the level nearest to each value under half a scale; of two as near, the first of
/// [`DOUBLED`].
#[inline(always)]
fn level_codes(values: &[f32; RUN], half: f32) -> [u8; RUN] {
    let (mut codes, mut misses) = ([0; RUN], values.map(f32::abs));
    for (code, level) in (0..).zip(DOUBLED).skip(1) {
        let level = f32::from(level) * half;
        for ((best, least), value) in codes.iter_mut().zip(&mut misses).zip(values) {
            let miss = (level - value).abs();
            if miss < *least {
                (*best, *least) = (code, miss);
            }
        }
    }
    codes
}

struct Nvfp4Blocks;

impl BlockFormat<LEN, BYTES> for Nvfp4Blocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::RunFloats,
        block: (LEN, BYTES),
        codes: |block, codes| {
            for (run, codes) in runs(block).iter().zip(codes.chunks_exact_mut(RUN)) {
                nibble_codes(run, codes);
            }
        },
        scales: |block| {
            let mut scales = BlockScales::default();
            for (scale, code) in scales.scales[..RUNS].iter_mut().zip(block) {
                *scale = unsigned(*code) as i8;
            }
            scales
        },
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; BYTES], out: &mut [f32; LEN]) {
        let coded = block[..RUNS].iter().zip(runs(block));
        for ((scale, run), out) in coded.zip(out.chunks_exact_mut(RUN)) {
            let half = half_scale(*scale);
            nibbles(run, out, |q| half * f32::from(DOUBLED[usize::from(q)]));
        }
    }

    /// The scale puts the largest magnitude at the largest level, whatever the weights, as in ggml.
    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; BYTES]) {
        let (scales, codes) = block.split_at_mut(RUNS);
        let runs = values.values.as_chunks::<RUN>().0.iter();
        for ((values, scale), bytes) in runs.zip(scales).zip(codes.chunks_exact_mut(RUN / 2)) {
            let largest = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
            *scale = scale_code(largest / 6.0);
            pack_nibbles(&level_codes(values, half_scale(*scale)), bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::fp8;

    #[test]
    fn every_scale_has_the_value_of_its_unsigned_code() {
        for code in 0..=u8::MAX {
            let want = match code {
                0x7f => 0.0,
                0xff => 240.0,
                _ => 0.5 * fp8::value(code & 0x7f),
            };
            assert_eq!(half_scale(code).to_bits(), want.to_bits(), "{code:#x}");
        }
    }

    #[test]
    fn scales_are_rounded_to_the_nearest_up_to_256() {
        for code in 0..15 << 3 {
            assert_eq!(scale_code(fp8::value(code)), code);
            let middle = (fp8::value(code) + fp8::value(code + 1)) / 2.0;
            // Below the normal numbers the last middle stays below.
            let up = if code == 7 { 7 } else { code + 1 };
            assert_eq!(scale_code(middle), if up < 15 << 3 { up } else { TOP }, "{middle}");
            assert_eq!(scale_code(middle * 0.9999), code, "{middle}");
        }
        for value in [256.0, 300.0, 448.0, 1e30] {
            assert_eq!(scale_code(value), TOP);
        }
    }

    #[test]
    fn each_run_has_its_own_scale_and_its_own_bytes() {
        let mut block = [0; BYTES];
        for run in 0..RUNS {
            block[run] = 0x30 + 8 * run as u8;
            for i in 0..8 {
                block[RUNS + 8 * run + i] = (i | (i + 8) << 4) as u8;
            }
        }
        let mut values = [0.0; LEN];
        (NVFP4.dequantize.unwrap())(&block, &mut values);
        let levels = [0.0f32, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        for (run, values) in values.chunks_exact(RUN).enumerate() {
            let scale = 0.5 * 2f32.powi(run as i32);
            for (i, level) in levels.into_iter().enumerate() {
                assert_eq!((values[i], values[i + 8]), (level * scale, -level * scale));
            }
        }
        assert_eq!(values[8].to_bits(), 0);
    }
}
