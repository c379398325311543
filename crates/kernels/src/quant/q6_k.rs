//! Q6_K: 256 six-bit codes around 32 in sixteen groups of 16 with signed byte scales under one
//! f16 factor. Follows `dequantize_row_q6_K` of ggml.

use super::fit::{Levels, WeightedBlock, fit_scales, inverse, nearest, store_f16};
use crate::lanes::widen::Widen;
use crate::quant::block_format::BlockFormat;
use crate::quant::codes::{add_bits, centred, read_bits, read_f16, restore_line};
use crate::quant::packing::{BlockScales, CodeLayout, Packing, packing};
use crate::quant::quant_type::QuantType;

const LEN: usize = 256;
const BYTES: usize = 210;
const GROUPS: usize = 16;
const GROUP_LEN: usize = 16;
/// Offsets of the high bits, the scales and the factor; the low nibbles come first.
const HIGH: usize = 128;
const SCALES: usize = 192;
const FACTOR: usize = 208;

/// Sixteen groups of 16 six-bit codes: `value = d * scale * (q - 32)`.
pub static Q6_K: QuantType = QuantType::of::<Q6KBlocks, LEN, BYTES>("q6_k", 14);

/// Where value `index` of a block keeps its low four bits (byte, shift) and its high two.
#[inline(always)]
fn place(index: usize) -> ((usize, u32), (usize, u32)) {
    let (half, within) = (index / 128, index % 128);
    let (quarter, lane) = (within / 32, within % 32);
    let low = half * 64 + quarter % 2 * 32 + lane;
    ((low, quarter as u32 / 2 * 4), (HIGH + half * 32 + lane, quarter as u32 * 2))
}

#[inline(always)]
fn level(value: f32) -> f32 {
    nearest(value, -32.0, 31.0)
}

/// Where the value of largest magnitude is tried, relative to the levels at the ends.
const REACHES: [f32; 5] = [0.9, 0.95, 1.0, 1.03, 1.06];

/// The codes of a block.
#[inline(always)]
fn codes(block: &[u8; BYTES], codes: &mut [u8; LEN]) {
    for (run, codes) in codes.chunks_exact_mut(32).enumerate() {
        let ((low, low_shift), (high, high_shift)) = place(run * 32);
        codes.fill(0);
        add_bits(&block[low..], (low_shift, 15, 0), codes);
        add_bits(&block[high..], (high_shift, 3, 4), codes);
    }
}

struct Q6KBlocks;

impl BlockFormat<LEN, BYTES> for Q6KBlocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::SuperSix,
        block: (LEN, BYTES),
        codes: |block, all| codes(block, all),
        scales: |block| BlockScales {
            scale: read_bits(&block[FACTOR..]),
            scales: std::array::from_fn(|g| block[SCALES + g] as i8),
            ..BlockScales::default()
        },
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; BYTES], out: &mut [f32; LEN]) {
        let mut all = [0; LEN];
        codes(block, &mut all);
        let d = read_f16(&block[FACTOR..]);
        let groups =
            centred(&mut all, 32).chunks_exact(GROUP_LEN).zip(out.chunks_exact_mut(GROUP_LEN));
        for ((codes, out), scale) in groups.zip(&block[SCALES..]) {
            restore_line::<L>(codes, d * f32::from(*scale as i8), 0.0, out);
        }
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; BYTES]) {
        let levels = Levels { round: level, ends: [-32.0, 31.0], reaches: &REACHES };
        let (d, scales) = fit_scales::<LEN, GROUP_LEN, GROUPS>(values, levels, [-128.0, 127.0], 5);
        store_f16(d, &mut block[FACTOR..]);
        for (g, group) in values.groups::<GROUP_LEN>().enumerate() {
            block[SCALES + g] = scales[g] as i8 as u8;
            let inverse = inverse(d.to_f32() * scales[g]);
            let ((low, low_shift), (high, high_shift)) = place(g * GROUP_LEN);
            for (i, value) in group.values.iter().enumerate() {
                let code = (level(value * inverse) + 32.0) as u8;
                block[low + i] |= (code & 15) << low_shift;
                block[high + i] |= (code >> 4) << high_shift;
            }
        }
    }
}
