//! IQ1_S and IQ1_M: eights of values as entries of a ternary codebook moved by an eighth up or
//! down, under an f16 factor and three-bit scales per 32 or 16 values. Follows
//! `dequantize_row_iq1_s` and `dequantize_row_iq1_m` of ggml.

use super::fit::{
    Book, Leveled, Rounded, Rounding, StepGrid, WeightedBlock, WeightedGroup, fit_steps, store_f16,
};
use super::grids::IQ1 as GRID;
use super::iq2::{EIGHT, nibble};
use crate::lanes::widen::Widen;
use crate::quant::block_format::BlockFormat;
use crate::quant::codes::{read_bits, read_f16};
use crate::quant::packing::{BlockScales, CodeLayout, Packing, entry_codes, packing};
use crate::quant::quant_type::QuantType;
use std::sync::LazyLock;

const LEN: usize = 256;
/// How far all values of an entry are moved.
const DELTA: f32 = 0.125;

/// A scale and a move per 32: `value = d * (2 * scale + 1) * (entry +- 1/8)`.
pub static IQ1_S: QuantType = QuantType::of::<Iq1SBlocks, LEN, 50>("iq1_s", 19);

/// A scale per 16 and a move per 8: `value = d * (2 * scale + 1) * (entry +- 1/8)`. The factor's
/// bits are the high nibbles of the four words of scales.
pub static IQ1_M: QuantType = QuantType::of::<Iq1MBlocks, LEN, 56>("iq1_m", 29);

#[inline(always)]
fn write(out: &mut [f32], entry: u16, scale: f32, down: bool) {
    let delta = if down { -DELTA } else { DELTA };
    for (i, out) in out.iter_mut().enumerate() {
        *out = scale * (f32::from(entry >> (2 * i) & 3) - 1.0 + delta);
    }
}

static BOOK: LazyLock<Book<EIGHT, 3>> = LazyLock::new(|| Book::new(&GRID, 2));

/// The levels of an entry that is moved up, and of one that is moved down.
const LEVELS: [[f32; 3]; 2] =
    [[DELTA - 1.0, DELTA, DELTA + 1.0], [-DELTA - 1.0, -DELTA, 1.0 - DELTA]];
const STEPS: StepGrid = StepGrid { part: 2.0, most: 7.0, reaches: &REACHES };
/// Where the value of largest magnitude is tried.
const REACHES: [f32; 9] = [0.8, 1.0, 1.15, 1.3, 1.45, 1.6, 1.8, 2.1, 2.5];

/// Rounds a group to entries that are all moved in the direction that loses less.
#[derive(Clone, Copy)]
struct Moved<'a>(&'a Book<EIGHT, 3>);

impl Moved<'_> {
    #[inline(always)]
    fn leveled(&self, down: bool) -> Leveled<'_, EIGHT, 3> {
        Leveled { book: self.0, levels: &LEVELS[usize::from(down)] }
    }

    /// The group, and whether it is moved down.
    #[inline(always)]
    fn better<const N: usize>(
        &self,
        group: WeightedGroup<'_, N>,
        scale: f32,
    ) -> (Rounded<N>, bool) {
        let mut best = (Rounded { levels: [0.0; N], loss: f32::INFINITY }, false);
        for down in [false, true] {
            let rounded = self.leveled(down).round(group, scale);
            if rounded.loss < best.0.loss {
                best = (rounded, down);
            }
        }
        best
    }
}

impl<const N: usize> Rounding<N> for Moved<'_> {
    #[inline(always)]
    fn round(self, group: WeightedGroup<'_, N>, scale: f32) -> Rounded<N> {
        self.better(group, scale).0
    }
}

/// Rounds each eight of a group to an entry that is moved on its own.
#[derive(Clone, Copy)]
struct MovedApart<'a>(Moved<'a>);

impl<const N: usize> Rounding<N> for MovedApart<'_> {
    #[inline(always)]
    fn round(self, group: WeightedGroup<'_, N>, scale: f32) -> Rounded<N> {
        let mut rounded = Rounded { levels: [0.0; N], loss: 0.0 };
        for (eight, out) in group.eights().zip(rounded.levels.as_chunks_mut::<EIGHT>().0) {
            let found = self.0.round(eight, scale);
            *out = found.levels;
            rounded.loss += found.loss;
        }
        rounded
    }
}

struct Iq1SBlocks;

impl BlockFormat<LEN, 50> for Iq1SBlocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::Iq1S,
        block: (LEN, 50),
        codes: |block, codes| {
            for (i, codes) in codes.chunks_exact_mut(EIGHT).enumerate() {
                let word = read_bits(&block[34 + i / 4 * 2..]);
                let high = word >> (3 * (i % 4)) & 7;
                entry_codes([u16::from(block[2 + i]) | high << 8], (word >> 15) as u8, codes);
            }
        },
        scales: |block| {
            let mut scales = BlockScales { scale: read_bits(block), ..BlockScales::default() };
            for (group, scale) in scales.scales[..8].iter_mut().enumerate() {
                *scale = (read_bits(&block[34 + 2 * group..]) >> 12 & 7) as i8;
            }
            scales
        },
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; 50], out: &mut [f32; LEN]) {
        let d = read_f16(block);
        for (i, out) in out.chunks_exact_mut(EIGHT).enumerate() {
            let word = read_bits(&block[34 + i / 4 * 2..]);
            let scale = d * f32::from(2 * (word >> 12 & 7) + 1);
            let high = word >> (3 * (i % 4)) & 7;
            let entry = GRID[usize::from(u16::from(block[2 + i]) | high << 8)];
            write(out, entry, scale, word >> 15 == 1);
        }
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; 50]) {
        let moved = Moved(&BOOK);
        let (d, steps) = fit_steps::<LEN, 32, 8>(values, STEPS, moved);
        store_f16(d, block);
        for (g, group) in values.groups::<32>().enumerate() {
            let scale = STEPS.scale(d, steps[g]);
            let down = moved.better(group, scale).1;
            let mut word = (steps[g] as u16) << 12 | u16::from(down) << 15;
            for (i, eight) in group.eights().enumerate() {
                let entry = moved.leveled(down).nearest_eight(eight, scale).0[0];
                block[2 + 4 * g + i] = entry as u8;
                word |= (entry >> 8) << (3 * i);
            }
            block[34 + 2 * g..][..2].copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// The bits of an IQ1_M block's factor.
#[inline(always)]
fn factor(block: &[u8; 56]) -> u16 {
    let words = block[48..].as_chunks().0.iter().copied().map(u16::from_le_bytes);
    words.enumerate().fold(0, |bits, (i, word)| bits | word >> 12 << (4 * i))
}

/// The three bits of the scale of a sixteen of an IQ1_M block.
#[inline(always)]
fn step(block: &[u8; 56], sixteen: usize) -> u16 {
    read_bits(&block[48 + sixteen / 4 * 2..]) >> (3 * (sixteen % 4)) & 7
}

struct Iq1MBlocks;

impl BlockFormat<LEN, 56> for Iq1MBlocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::Iq1M,
        block: (LEN, 56),
        codes: |block, codes| {
            for (i, codes) in codes.chunks_exact_mut(EIGHT).enumerate() {
                let high = nibble(&block[32..], i) as u16;
                let number = u16::from(block[i]) | (high & 7) << 8;
                entry_codes([number], (high >> 3) as u8, codes);
            }
        },
        scales: |block| {
            let mut scales = BlockScales { scale: factor(block), ..BlockScales::default() };
            for (sixteen, scale) in scales.scales.iter_mut().enumerate() {
                *scale = step(block, sixteen) as i8;
            }
            scales
        },
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; 56], out: &mut [f32; LEN]) {
        let d = half::f16::from_bits(factor(block)).to_f32();
        for (i, out) in out.chunks_exact_mut(EIGHT).enumerate() {
            let scale = d * f32::from(2 * step(block, i / 2) + 1);
            let high = nibble(&block[32..], i);
            let entry = GRID[usize::from(block[i]) | (high as usize & 7) << 8];
            write(out, entry, scale, high & 8 != 0);
        }
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; 56]) {
        let moved = Moved(&BOOK);
        let (d, steps) = fit_steps::<LEN, 16, 16>(values, STEPS, MovedApart(moved));
        for (i, steps) in steps.chunks_exact(4).enumerate() {
            let factor = d.to_bits() >> (4 * i) << 12;
            let word = (0..4).fold(factor, |word, j| word | (steps[j] as u16) << (3 * j));
            block[48 + 2 * i..][..2].copy_from_slice(&word.to_le_bytes());
        }
        for (i, eight) in values.groups::<EIGHT>().enumerate() {
            let scale = STEPS.scale(d, steps[i / 2]);
            let down = moved.better(eight, scale).1;
            let entry = moved.leveled(down).nearest_eight(eight, scale).0[0];
            block[i] = entry as u8;
            block[32 + i / 2] |= ((entry >> 8) as u8 | u8::from(down) << 3) << (i % 2 * 4);
        }
    }
}
