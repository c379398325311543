//! Q4_0 and Q4_1: 32 four-bit codes with one f16 scale, around 8 or over an f16 minimum; code
//! `i` is the low nibble of byte `i`, code `i + 16` its high nibble. Follows
//! `dequantize_row_q4_0` and `dequantize_row_q4_1` of ggml.

use super::fit::{Levels, WeightedBlock, nearest, store_f16_line, store_f16_scale};
use crate::lanes::widen::Widen;
use crate::quant::block_format::BlockFormat;
use crate::quant::codes::{centred, nibble_codes, read_bits, read_f16, restore_line};
use crate::quant::packing::{BlockScales, CodeLayout, Packing, packing};
use crate::quant::quant_type::QuantType;

const LEN: usize = 32;
/// Where the value of largest magnitude is tried, relative to the levels at the ends.
const REACHES: [f32; 13] =
    [0.86, 0.89, 0.92, 0.95, 0.975, 1.0, 1.025, 1.05, 1.08, 1.11, 1.15, 1.2, 1.3];

/// 32 four-bit codes with one f16 scale: `value = d * (q - 8)`.
pub static Q4_0: QuantType = QuantType::of::<Q4_0Blocks, LEN, 18>("q4_0", 2);

/// 32 four-bit codes with an f16 scale and minimum: `value = d * q + m`.
pub static Q4_1: QuantType = QuantType::of::<Q4_1Blocks, LEN, 20>("q4_1", 3);

/// Scale and minimum of a block that begins with both; the file's minimum is added.
#[inline(always)]
pub(super) fn over_minimum(block: &[u8]) -> BlockScales {
    let (scale, min) = (read_bits(block), read_bits(&block[2..]) ^ 0x8000);
    BlockScales { scale, min, ..BlockScales::default() }
}

/// `out` from the nibbles of half as many bytes: the low ones first, then the high ones.
pub(super) fn nibbles(bytes: &[u8], out: &mut [f32], value: impl Fn(u8) -> f32) {
    let (low, high) = out.split_at_mut(bytes.len());
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        *low = value(byte & 15);
        *high = value(byte >> 4);
    }
}

/// The inverse of [`nibbles`].
#[inline(always)]
pub(super) fn pack_nibbles(codes: &[u8], bytes: &mut [u8]) {
    let (low, high) = codes.split_at(bytes.len());
    for ((low, high), byte) in low.iter().zip(high).zip(bytes) {
        *byte = low & 15 | high << 4;
    }
}

#[inline(always)]
fn level(value: f32) -> f32 {
    nearest(value, -8.0, 7.0)
}

struct Q4_0Blocks;

impl BlockFormat<LEN, 18> for Q4_0Blocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::Four,
        block: (LEN, 18),
        codes: |block, codes| nibble_codes(&block[2..], codes),
        scales: |block| BlockScales { scale: read_bits(block), ..BlockScales::default() },
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; 18], out: &mut [f32; LEN]) {
        let mut codes = [0; LEN];
        nibble_codes(&block[2..], &mut codes);
        restore_line::<L>(centred(&mut codes, 8), read_f16(block), 0.0, out);
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; 18]) {
        let levels = Levels { round: level, ends: [-8.0, 7.0], reaches: &REACHES };
        let units = store_f16_scale(values, levels, block);
        pack_nibbles(&units.map(|v| (level(v) + 8.0) as u8), &mut block[2..]);
    }
}

struct Q4_1Blocks;

impl BlockFormat<LEN, 20> for Q4_1Blocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::FourMin,
        block: (LEN, 20),
        codes: |block, codes| nibble_codes(&block[4..], codes),
        scales: |block| over_minimum(block),
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; 20], out: &mut [f32; LEN]) {
        let mut codes = [0; LEN];
        nibble_codes(&block[4..], &mut codes);
        let (d, m) = (read_f16(block), read_f16(&block[2..]));
        restore_line::<L>(bytemuck::cast_slice(&codes), d, -m, out);
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; 20]) {
        let line = store_f16_line(values.whole(), 15.0, block);
        pack_nibbles(&values.values.map(|v| line.code(v, 15.0) as u8), &mut block[4..]);
    }
}
