//! IQ4_NL and IQ4_XS: four-bit codes into a table of sixteen uneven levels; IQ4_NL has one f16
//! scale per 32, IQ4_XS eight six-bit scales around 32 under one f16 factor per 256. Follows
//! `dequantize_row_iq4_nl` and `dequantize_row_iq4_xs` of ggml.

use super::fit::{Levels, WeightedBlock, fit_scales, inverse, store_f16, store_f16_scale};
use super::q4_0::{nibbles, pack_nibbles};
use crate::lanes::widen::Widen;
use crate::quant::block_format::BlockFormat;
use crate::quant::codes::{nibble_codes, read_bits, read_f16};
use crate::quant::packing::{BlockScales, CodeLayout, Packing, packing};
use crate::quant::quant_type::QuantType;

const GROUP_LEN: usize = 32;
const GROUPS: usize = 8;

/// Levels that a code stands for, in units of the scale.
pub(crate) const LEVELS: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// 32 codes with one f16 scale: `value = d * LEVELS[q]`.
pub static IQ4_NL: QuantType = QuantType::of::<Iq4NlBlocks, GROUP_LEN, 18>("iq4_nl", 20);

/// Eight groups of 32 codes: `value = d * (scale - 32) * LEVELS[q]`.
pub static IQ4_XS: QuantType = QuantType::of::<Iq4XsBlocks, 256, 136>("iq4_xs", 23);

/// The six-bit scale of a group of an IQ4_XS block, less 32.
#[inline(always)]
fn group_scale(block: &[u8], group: usize) -> i8 {
    let low = block[4 + group / 2] >> (group % 2 * 4) & 15;
    let high = (read_bits(&block[2..]) >> (2 * group) & 3) as u8;
    (low | high << 4) as i8 - 32
}

/// The level nearest to `value`: the lowest, and all gaps whose middles lie below `value`.
#[inline(always)]
fn level(value: f32) -> f32 {
    let mut level = f32::from(LEVELS[0]);
    for pair in LEVELS.windows(2) {
        let [low, high] = [f32::from(pair[0]), f32::from(pair[1])];
        level += if value > (low + high) / 2.0 { high - low } else { 0.0 };
    }
    level
}

/// The code of the level nearest to `value`.
#[inline(always)]
fn code(value: f32) -> u8 {
    let level = level(value);
    LEVELS.partition_point(|&l| f32::from(l) < level) as u8
}

/// Where the value of largest magnitude is tried, relative to the levels at the ends.
const REACHES: [f32; 11] = [0.89, 0.92, 0.95, 0.975, 1.0, 1.025, 1.05, 1.08, 1.12, 1.16, 1.24];

fn levels() -> Levels<impl Fn(f32) -> f32 + Copy> {
    Levels { round: level, ends: [-127.0, 113.0], reaches: &REACHES }
}

struct Iq4NlBlocks;

impl BlockFormat<GROUP_LEN, 18> for Iq4NlBlocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::Levels,
        block: (GROUP_LEN, 18),
        codes: |block, codes| nibble_codes(&block[2..], codes),
        scales: |block| BlockScales { scale: read_bits(block), ..BlockScales::default() },
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; 18], out: &mut [f32; GROUP_LEN]) {
        let d = read_f16(block);
        nibbles(&block[2..], out, |q| d * f32::from(LEVELS[usize::from(q)]));
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<GROUP_LEN>, block: &mut [u8; 18]) {
        let units = store_f16_scale(values, levels(), block);
        pack_nibbles(&units.map(code), &mut block[2..]);
    }
}

struct Iq4XsBlocks;

impl BlockFormat<256, 136> for Iq4XsBlocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::SuperLevels,
        block: (256, 136),
        codes: |block, codes| {
            let groups = block[8..].chunks_exact(GROUP_LEN / 2);
            for (bytes, codes) in groups.zip(codes.chunks_exact_mut(GROUP_LEN)) {
                nibble_codes(bytes, codes);
            }
        },
        scales: |block| {
            let mut scales = BlockScales { scale: read_bits(block), ..BlockScales::default() };
            for (group, scale) in scales.scales[..GROUPS].iter_mut().enumerate() {
                *scale = group_scale(block, group);
            }
            scales
        },
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; 136], out: &mut [f32; 256]) {
        let d = read_f16(block);
        let groups = block[8..].chunks_exact(GROUP_LEN / 2);
        for (group, (codes, out)) in groups.zip(out.chunks_exact_mut(GROUP_LEN)).enumerate() {
            let d = d * f32::from(group_scale(block, group));
            nibbles(codes, out, |q| d * f32::from(LEVELS[usize::from(q)]));
        }
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<256>, block: &mut [u8; 136]) {
        let range = [-32.0, 31.0];
        let (d, scales) = fit_scales::<256, GROUP_LEN, GROUPS>(values, levels(), range, 2);
        store_f16(d, block);
        let mut high = 0;
        for (g, group) in values.groups::<GROUP_LEN>().enumerate() {
            let scale = (scales[g] + 32.0) as u8;
            block[4 + g / 2] |= (scale & 15) << (g % 2 * 4);
            high |= u16::from(scale >> 4) << (2 * g);
            let inverse = inverse(d.to_f32() * scales[g]);
            let bytes = &mut block[8 + g * GROUP_LEN / 2..][..GROUP_LEN / 2];
            pack_nibbles(&group.values.map(|v| code(v * inverse)), bytes);
        }
        block[2..4].copy_from_slice(&high.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_nearest_to_itself() {
        for (index, &expected) in LEVELS.iter().enumerate() {
            for near in [-0.49, 0.0, 0.49] {
                let value = f32::from(expected) + near;
                assert_eq!((level(value), code(value)), (f32::from(expected), index as u8));
            }
        }
        assert_eq!((code(-1e30), code(1e30)), (0, 15));
    }
}
