//! Q5_0 and Q5_1: 32 five-bit codes with one f16 scale, around 16 or over an f16 minimum. The
//! fifth bits are a little-endian word, the others nibbles as in Q4_0. Follows
//! `dequantize_row_q5_0` and `dequantize_row_q5_1` of ggml.

use super::fit::{Levels, WeightedBlock, nearest, store_f16_line, store_f16_scale};
use super::q4_0::{over_minimum, pack_nibbles};
use crate::lanes::widen::Widen;
use crate::quant::block_format::BlockFormat;
use crate::quant::codes::{centred, nibble_codes, read_bits, read_f16, restore_line};
use crate::quant::packing::{BlockScales, CodeLayout, Packing, packing};
use crate::quant::quant_type::QuantType;

const LEN: usize = 32;
/// Where the value of largest magnitude is tried, relative to the levels at the ends.
const REACHES: [f32; 11] = [0.9, 0.92, 0.94, 0.96, 0.98, 1.0, 1.02, 1.04, 1.06, 1.08, 1.1];

/// 32 five-bit codes with one f16 scale: `value = d * (q - 16)`.
pub static Q5_0: QuantType = QuantType::of::<Q5_0Blocks, LEN, 22>("q5_0", 6);

/// 32 five-bit codes with an f16 scale and minimum: `value = d * q + m`.
pub static Q5_1: QuantType = QuantType::of::<Q5_1Blocks, LEN, 24>("q5_1", 7);

/// The codes of four bytes of fifth bits and sixteen of nibbles.
#[inline(always)]
fn codes(packed: &[u8], codes: &mut [u8]) {
    nibble_codes(&packed[4..], codes);
    let high = u32::from_le_bytes([packed[0], packed[1], packed[2], packed[3]]);
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= ((high >> i & 1) as u8) << 4;
    }
}

/// The inverse of [`codes`].
#[inline(always)]
fn pack(codes: &[u8; LEN], packed: &mut [u8]) {
    let high = codes.iter().enumerate().fold(0u32, |bits, (i, q)| bits | u32::from(q >> 4) << i);
    packed[..4].copy_from_slice(&high.to_le_bytes());
    pack_nibbles(codes, &mut packed[4..20]);
}

#[inline(always)]
fn level(value: f32) -> f32 {
    nearest(value, -16.0, 15.0)
}

struct Q5_0Blocks;

impl BlockFormat<LEN, 22> for Q5_0Blocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::Five,
        block: (LEN, 22),
        codes: |block, out| codes(&block[2..], out),
        scales: |block| BlockScales { scale: read_bits(block), ..BlockScales::default() },
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; 22], out: &mut [f32; LEN]) {
        let mut q = [0; LEN];
        codes(&block[2..], &mut q);
        restore_line::<L>(centred(&mut q, 16), read_f16(block), 0.0, out);
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; 22]) {
        let levels = Levels { round: level, ends: [-16.0, 15.0], reaches: &REACHES };
        let units = store_f16_scale(values, levels, block);
        pack(&units.map(|v| (level(v) + 16.0) as u8), &mut block[2..]);
    }
}

struct Q5_1Blocks;

impl BlockFormat<LEN, 24> for Q5_1Blocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::FiveMin,
        block: (LEN, 24),
        codes: |block, out| codes(&block[4..], out),
        scales: |block| over_minimum(block),
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; 24], out: &mut [f32; LEN]) {
        let (d, m) = (read_f16(block), read_f16(&block[2..]));
        let mut q = [0; LEN];
        codes(&block[4..], &mut q);
        restore_line::<L>(bytemuck::cast_slice(&q), d, -m, out);
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; 24]) {
        let line = store_f16_line(values.whole(), 31.0, block);
        pack(&values.values.map(|v| line.code(v, 31.0) as u8), &mut block[4..]);
    }
}
