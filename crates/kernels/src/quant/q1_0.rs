//! Q1_0: 128 signs under one f16 scale, bit `i % 8` of byte `i / 8` for value `i`. Follows
//! `dequantize_row_q1_0` and, where values are quantised, `quantize_row_q1_0_ref` of ggml.

use super::fit::{WeightedBlock, store_f16};
use crate::lanes::widen::Widen;
use crate::quant::block_format::BlockFormat;
use crate::quant::codes::{centred, read_bits, read_f16, restore_line};
use crate::quant::packing::{BlockScales, CodeLayout, Packing, packing};
use crate::quant::quant_type::QuantType;
use half::f16;

const LEN: usize = 128;
const BYTES: usize = 18;

/// 128 signs with one f16 scale: `value = d` where the bit is set, else `-d`.
pub static Q1_0: QuantType = QuantType::of::<Q1Blocks, LEN, BYTES>("q1_0", 41);

/// A byte for each bit of `bytes`, the lowest bits first: `set` or 0.
#[inline(always)]
fn spread(bytes: &[u8], set: u8, codes: &mut [u8]) {
    for (byte, codes) in bytes.iter().zip(codes.as_chunks_mut::<8>().0) {
        // Byte `i` keeps bit `i`, and moves it to the top by addition.
        let bits = (u64::from(*byte) * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
        let tops = (bits + 0x7f7f_7f7f_7f7f_7f7f) & 0x8080_8080_8080_8080;
        *codes = ((tops >> 7) * u64::from(set)).to_le_bytes();
    }
}

struct Q1Blocks;

impl BlockFormat<LEN, BYTES> for Q1Blocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::Signs,
        block: (LEN, BYTES),
        codes: |block, codes| spread(&block[2..], 1, codes),
        scales: |block| BlockScales { scale: read_bits(block), ..BlockScales::default() },
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; BYTES], out: &mut [f32; LEN]) {
        let mut codes = [0; LEN];
        spread(&block[2..], 2, &mut codes);
        restore_line::<L>(centred(&mut codes, 1), read_f16(block), 0.0, out);
    }

    /// The scale is the mean magnitude, which is the best one of all if weights are equal; it is
    /// the mean whatever the weights, as in ggml. The sum is in the order of the values.
    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; BYTES]) {
        let sum = values.values.iter().fold(0.0f32, |sum, value| sum + value.abs());
        let mean = (sum / LEN as f32).min(f16::MAX.to_f32());
        store_f16(f16::from_f32(mean), block);
        for (byte, values) in block[2..].iter_mut().zip(values.values.as_chunks::<8>().0) {
            for (bit, value) in values.iter().enumerate() {
                *byte |= u8::from(*value >= 0.0) << bit;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_signs_and_the_lowest_come_first() {
        let mut block = [0; BYTES];
        store_f16(f16::from_f32(0.25), &mut block);
        block[2] = 0b0000_0101;
        block[17] = 0x80;
        let mut values = [0.0; LEN];
        (Q1_0.dequantize.unwrap())(&block, &mut values);
        for (at, value) in values.into_iter().enumerate() {
            let sign = if [0, 2, 127].contains(&at) { 1.0 } else { -1.0 };
            assert_eq!(value, sign * 0.25, "{at}");
        }
    }

    #[test]
    fn values_of_one_magnitude_come_back_exactly() {
        let values: Vec<f32> = (0..256).map(|i| if i % 3 == 0 { 0.75 } else { -0.75 }).collect();
        let mut bytes = vec![0; Q1_0.bytes_for(values.len()).unwrap()];
        let mut back = vec![0.0; values.len()];
        (Q1_0.quantize.unwrap())(&values, None, &mut bytes);
        (Q1_0.dequantize.unwrap())(&bytes, &mut back);
        assert_eq!(back, values);
    }
}
