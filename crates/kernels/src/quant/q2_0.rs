//! Q2_0: 64 two-bit codes around 1 under one f16 scale, code `i` in the bits from `2 * (i % 4)` on
//! of byte `i / 4`. Follows `dequantize_row_q2_0` and, where values are quantised,
//! `quantize_row_q2_0_ref` of ggml.

use super::fit::{WeightedBlock, store_f16};
use crate::lanes::widen::Widen;
use crate::quant::block_format::BlockFormat;
use crate::quant::codes::{centred, read_bits, read_f16, restore_line};
use crate::quant::packing::{BlockScales, CodeLayout, Packing, packing};
use crate::quant::quant_type::QuantType;
use half::f16;

const LEN: usize = 64;
const BYTES: usize = 18;

/// 64 two-bit codes with one f16 scale: `value = d * (q - 1)`.
pub static Q2_0: QuantType = QuantType::of::<Q2Blocks, LEN, BYTES>("q2_0", 42);

/// The four codes of each byte, the lowest bits first.
#[inline(always)]
fn spread(bytes: &[u8], codes: &mut [u8]) {
    for (byte, codes) in bytes.iter().zip(codes.as_chunks_mut::<4>().0) {
        let byte = u32::from(*byte);
        let spread = byte | byte << 6 | byte << 12 | byte << 18;
        *codes = (spread & 0x0303_0303).to_le_bytes();
    }
}

struct Q2Blocks;

impl BlockFormat<LEN, BYTES> for Q2Blocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::Two,
        block: (LEN, BYTES),
        codes: |block, codes| spread(&block[2..], codes),
        scales: |block| BlockScales { scale: read_bits(block), ..BlockScales::default() },
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; BYTES], out: &mut [f32; LEN]) {
        let mut codes = [0; LEN];
        spread(&block[2..], &mut codes);
        restore_line::<L>(centred(&mut codes, 1), read_f16(block), 0.0, out);
    }

    /// The scale is the largest magnitude, whatever the weights, as in ggml: values become -d, 0
    /// or d, and none the fourth level.
    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; BYTES]) {
        let largest = values.values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let inverse = if largest > 0.0 { 1.0 / largest } else { 0.0 };
        store_f16(f16::from_f32(largest.min(f16::MAX.to_f32())), block);
        for (byte, values) in block[2..].iter_mut().zip(values.values.as_chunks::<4>().0) {
            for (at, value) in values.iter().enumerate() {
                // Below 2^-126 the inverse is infinite.
                let units = (value * inverse).round().clamp(-1.0, 2.0);
                *byte |= ((units + 1.0) as u8) << (2 * at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_four_levels_are_restored() {
        let mut block = [0b1110_0100; BYTES];
        store_f16(f16::from_f32(-0.5), &mut block);
        let mut values = [f32::NAN; LEN];
        (Q2_0.dequantize.unwrap())(&block, &mut values);
        for four in values.as_chunks::<4>().0 {
            assert_eq!(four.map(f32::to_bits), [0.5, -0.0, -0.5, -1.0].map(f32::to_bits));
        }
    }

    #[test]
    fn halves_of_the_largest_magnitude_are_rounded_away_from_zero() {
        let mut source = [0.0; LEN];
        source[..6].copy_from_slice(&[-4.0, 2.0, -2.0, 1.99, -1.99, 4.0]);
        let (mut block, mut back) = ([0; BYTES], [0.0; LEN]);
        (Q2_0.quantize.unwrap())(&source, None, &mut block);
        (Q2_0.dequantize.unwrap())(&block, &mut back);
        assert_eq!(back[..7], [-4.0, 4.0, -4.0, 0.0, 0.0, 4.0, 0.0]);
    }
}
