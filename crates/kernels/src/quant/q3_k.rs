//! Q3_K: 256 three-bit codes around 4 in sixteen groups of 16 with six-bit scales around 32 under
//! one f16 factor. The third bits come first, one bit of 32 bytes per run of 32 codes. Follows
//! `dequantize_row_q3_K` of ggml.

use super::fit::{Levels, WeightedBlock, fit_scales, inverse, nearest, store_f16};
use super::q2_k::{place, two_bits};
use crate::lanes::widen::Widen;
use crate::quant::block_format::BlockFormat;
use crate::quant::codes::{add_bits, centred, read_bits, read_f16, restore_line};
use crate::quant::packing::{BlockScales, CodeLayout, Packing, packing};
use crate::quant::quant_type::QuantType;

const LEN: usize = 256;
const BYTES: usize = 110;
const GROUP_LEN: usize = 16;
const GROUPS: usize = 16;
/// Offsets of the low bits, the scales and the factor.
const LOW: usize = 32;
const SCALES: usize = 96;
const FACTOR: usize = 108;

/// Sixteen groups of 16 three-bit codes: `value = d * (scale - 32) * (q - 4)`.
pub static Q3_K: QuantType = QuantType::of::<Q3KBlocks, LEN, BYTES>("q3_k", 11);

/// Six-bit scales from twelve bytes: low nibbles of groups 0-7 and 8-15 in the low and high
/// nibbles of the first eight, then two high bits of groups `g`, `g + 4`, `g + 8`, `g + 12`.
#[inline(always)]
fn unpack_scales(packed: &[u8]) -> [u8; GROUPS] {
    std::array::from_fn(|g| {
        let low = packed[g % 8] >> (g / 8 * 4) & 15;
        low | (packed[8 + g % 4] >> (g / 4 * 2) & 3) << 4
    })
}

/// The inverse of [`unpack_scales`].
#[inline(always)]
fn pack_scales(scales: &[u8; GROUPS], packed: &mut [u8]) {
    for (g, scale) in scales.iter().enumerate() {
        packed[g % 8] |= (scale & 15) << (g / 8 * 4);
        packed[8 + g % 4] |= (scale >> 4) << (g / 4 * 2);
    }
}

#[inline(always)]
fn level(value: f32) -> f32 {
    nearest(value, -4.0, 3.0)
}

/// Where the value of largest magnitude is tried, relative to the levels at the ends.
const REACHES: [f32; 13] = [0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.55];

/// The codes of a block.
#[inline(always)]
fn codes(block: &[u8; BYTES], codes: &mut [u8; LEN]) {
    two_bits(&block[LOW..], codes);
    for (run, codes) in codes.chunks_exact_mut(32).enumerate() {
        add_bits(block, (run as u32, 1, 2), codes);
    }
}

struct Q3KBlocks;

impl BlockFormat<LEN, BYTES> for Q3KBlocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::SuperThree,
        block: (LEN, BYTES),
        codes: |block, all| codes(block, all),
        scales: |block| BlockScales {
            scale: read_bits(&block[FACTOR..]),
            scales: unpack_scales(&block[SCALES..FACTOR]).map(|scale| scale as i8 - 32),
            ..BlockScales::default()
        },
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; BYTES], out: &mut [f32; LEN]) {
        let mut all = [0; LEN];
        codes(block, &mut all);
        let (d, scales) = (read_f16(&block[FACTOR..]), unpack_scales(&block[SCALES..FACTOR]));
        let groups =
            centred(&mut all, 4).chunks_exact(GROUP_LEN).zip(out.chunks_exact_mut(GROUP_LEN));
        for ((codes, out), scale) in groups.zip(scales) {
            restore_line::<L>(codes, d * (f32::from(scale) - 32.0), 0.0, out);
        }
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; BYTES]) {
        let levels = Levels { round: level, ends: [-4.0, 3.0], reaches: &REACHES };
        let (d, scales) = fit_scales::<LEN, GROUP_LEN, GROUPS>(values, levels, [-32.0, 31.0], 3);
        store_f16(d, &mut block[FACTOR..]);
        pack_scales(&scales.map(|scale| (scale + 32.0) as u8), &mut block[SCALES..FACTOR]);
        for (g, group) in values.groups::<GROUP_LEN>().enumerate() {
            let inverse = inverse(d.to_f32() * scales[g]);
            let (low, shift) = place(g * GROUP_LEN);
            let (high, bit) = (g % 2 * GROUP_LEN, g / 2);
            for (i, value) in group.values.iter().enumerate() {
                let code = (level(value * inverse) + 4.0) as u8;
                block[LOW + low + i] |= (code & 3) << shift;
                block[high + i] |= (code >> 2) << bit;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_scales_come_back() {
        let scales = std::array::from_fn(|g| (g * 23 % 64) as u8);
        let mut packed = [0; 12];
        pack_scales(&scales, &mut packed);
        assert_eq!(unpack_scales(&packed), scales);
    }
}
