//! TQ1_0 and TQ2_0: 256 codes of -1, 0, 1 under one f16 scale. TQ1_0 keeps five of them in a
//! byte as a fraction in base three, TQ2_0 four in two bits each. Follows `dequantize_row_tq1_0`
//! and `dequantize_row_tq2_0` of ggml.

use super::fit::{Levels, WeightedBlock, nearest, store_f16_scale};
use super::q2_k::{place, two_bits};
use crate::lanes::widen::Widen;
use crate::quant::block_format::BlockFormat;
use crate::quant::codes::{read_bits, read_f16};
use crate::quant::packing::{BlockScales, CodeLayout, Packing, packing};
use crate::quant::quant_type::QuantType;

const LEN: usize = 256;

/// 256 ternary codes, five to a byte: `value = d * (q - 1)`.
pub static TQ1_0: QuantType = QuantType::of::<Tq1Blocks, LEN, 54>("tq1_0", 34);

/// 256 ternary codes in two bits each: `value = d * (q - 1)`.
pub static TQ2_0: QuantType = QuantType::of::<Tq2Blocks, LEN, 66>("tq2_0", 35);

/// One factor for the whole block.
#[inline(always)]
fn one_scale(factor: &[u8]) -> BlockScales {
    BlockScales { scale: read_bits(factor), scales: [1; 16], ..BlockScales::default() }
}

/// Runs of bytes of a TQ1_0 block: first byte, bytes, digits in each.
const RUNS: [(usize, usize, usize); 3] = [(0, 32, 5), (32, 16, 5), (48, 4, 4)];

/// Calls `each` with the index and digit of every value of a TQ1_0 block.
#[inline(always)]
fn digits(block: &[u8], mut each: impl FnMut(usize, u8)) {
    let mut index = 0;
    for (first, bytes, digits) in RUNS {
        for digit in 0..digits as u32 {
            for byte in &block[first..][..bytes] {
                // The next digit is what overflows a byte when the fraction is tripled.
                let fraction = byte.wrapping_mul(3u8.pow(digit));
                each(index, ((u16::from(fraction) * 3) >> 8) as u8);
                index += 1;
            }
        }
    }
}

/// Where the value of largest magnitude is tried, in units of the scale: any value from half of
/// a unit is rounded to a whole one.
const REACHES: [f32; 14] = [0.6, 0.75, 0.9, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.25, 2.5, 3.0, 4.0, 6.0];

/// Stores the scale of a block in `to`, and returns its codes.
#[inline(always)]
fn fit(block: &WeightedBlock<LEN>, to: &mut [u8]) -> [u8; LEN] {
    let level = |value| nearest(value, -1.0, 1.0);
    let levels = Levels { round: level, ends: [1.0, 1.0], reaches: &REACHES };
    store_f16_scale(block, levels, to).map(|v| (level(v) + 1.0) as u8)
}

struct Tq1Blocks;

impl BlockFormat<LEN, 54> for Tq1Blocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::Ternary,
        block: (LEN, 54),
        codes: |block, codes| digits(block, |index, digit| codes[index] = digit),
        scales: |block| one_scale(&block[52..]),
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; 54], out: &mut [f32; LEN]) {
        let d = read_f16(&block[52..]);
        digits(block, |index, digit| out[index] = d * (f32::from(digit) - 1.0));
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; 54]) {
        let codes = fit(values, &mut block[52..]);
        let mut rest = &codes[..];
        for (first, bytes, digits) in RUNS {
            let run = rest.split_off(..bytes * digits).expect("the runs hold a block");
            for (i, byte) in block[first..][..bytes].iter_mut().enumerate() {
                // Five digits in base three, the last ones zero where there are fewer.
                let digit = |d| run.get(d * bytes + i).map_or(0, |&q| u32::from(q));
                let whole = (0..5).fold(0, |whole, d| whole * 3 + digit(d));
                // Rounded up, so that tripling overflows into the digits again.
                *byte = (whole * 256).div_ceil(243) as u8;
            }
        }
    }
}

struct Tq2Blocks;

impl BlockFormat<LEN, 66> for Tq2Blocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::Ternary,
        block: (LEN, 66),
        codes: |block, codes| two_bits(block, codes),
        scales: |block| one_scale(&block[64..]),
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; 66], out: &mut [f32; LEN]) {
        let d = read_f16(&block[64..]);
        for (index, out) in out.iter_mut().enumerate() {
            let (byte, shift) = place(index);
            *out = d * (f32::from(block[byte] >> shift & 3) - 1.0);
        }
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; 66]) {
        let codes = fit(values, &mut block[64..]);
        for (index, code) in codes.iter().enumerate() {
            let (byte, shift) = place(index);
            block[byte] |= code << shift;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    #[test]
    fn ternary_values_come_back_exactly() {
        let mut rng = Rng::new(3);
        let values: Vec<f32> = (0..1024).map(|_| (rng.below(3) as f32 - 1.0) * 0.375).collect();
        for ty in [&TQ1_0, &TQ2_0] {
            let mut bytes = vec![0; ty.bytes_for(values.len()).unwrap()];
            let mut back = vec![0.0; values.len()];
            (ty.quantize.unwrap())(&values, None, &mut bytes);
            (ty.dequantize.unwrap())(&bytes, &mut back);
            assert_eq!(back, values, "{ty}");
        }
    }
}
