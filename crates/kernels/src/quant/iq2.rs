//! IQ2_XXS, IQ2_XS and IQ2_S: eights of values as entries of a codebook with eight separate signs,
//! under an f16 factor and four-bit scales per 32 or 16 values. Follows `dequantize_row_iq2_xxs`,
//! `dequantize_row_iq2_xs` and `dequantize_row_iq2_s` of ggml.

use super::fit::{Book, Leveled, Signs, StepGrid, Unsigned, WeightedBlock, fit_steps, store_f16};
use super::grids::{IQ2_S as GRID_S, IQ2_XS as GRID_XS, IQ2_XXS as GRID_XXS};
use crate::lanes::widen::Widen;
use crate::quant::block_format::BlockFormat;
use crate::quant::codes::{read_bits, read_f16};
use crate::quant::packing::{BlockScales, CodeLayout, Packing, entry_codes, packing};
use crate::quant::quant_type::QuantType;
use std::sync::LazyLock;

const LEN: usize = 256;
/// Values of a codebook entry.
pub(super) const EIGHT: usize = 8;
/// Magnitudes in the codebooks.
pub(crate) const LEVELS: [f32; 3] = [8.0, 25.0, 43.0];

/// Entries of eight bits and signs of seven: `value = d * (scale + 0.5) / 4 * entry * sign`.
pub static IQ2_XXS: QuantType = QuantType::of::<Iq2XxsBlocks, LEN, 66>("iq2_xxs", 16);

/// Entries of nine bits and signs of seven: `value = d * (scale + 0.5) / 4 * entry * sign`.
pub static IQ2_XS: QuantType = QuantType::of::<Iq2XsBlocks, LEN, 74>("iq2_xs", 17);

/// Entries of ten bits and signs of eight: `value = d * (scale + 0.5) / 4 * entry * sign`.
pub static IQ2_S: QuantType = QuantType::of::<Iq2SBlocks, LEN, 82>("iq2_s", 22);

/// Eight signs of which seven are stored: the number of negative ones is even.
#[inline(always)]
pub(super) fn even_signs(seven: u32) -> u8 {
    let seven = (seven & 127) as u8;
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// Negated where the bit of `signs` is set.
pub(super) fn signed(value: f32, signs: u8, index: usize) -> f32 {
    if signs >> index & 1 == 1 { -value } else { value }
}

#[inline(always)]
fn write(out: &mut [f32], entry: u16, signs: u8, scale: f32) {
    for (i, out) in out.iter_mut().enumerate() {
        let level = LEVELS[usize::from(entry >> (2 * i) & 3).min(2)];
        *out = signed(scale * level, signs, i);
    }
}

#[inline(always)]
fn scale(d: f32, four_bits: u32) -> f32 {
    d * (0.5 + four_bits as f32) * 0.25
}

#[inline(always)]
pub(super) fn read_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Nibble `index`, low ones first.
#[inline(always)]
pub(super) fn nibble(bytes: &[u8], index: usize) -> u32 {
    u32::from(bytes[index / 2] >> (index % 2 * 4) & 15)
}

static BOOK_XXS: LazyLock<Book<EIGHT, 3>> = LazyLock::new(|| Book::new(&GRID_XXS, 2));
static BOOK_XS: LazyLock<Book<EIGHT, 3>> = LazyLock::new(|| Book::new(&GRID_XS, 2));
static BOOK_S: LazyLock<Book<EIGHT, 3>> = LazyLock::new(|| Book::new(&GRID_S, 2));

const STEPS: StepGrid = StepGrid { part: 0.25, most: 15.0, reaches: &REACHES };
/// Where the value of largest magnitude is tried.
const REACHES: [f32; 9] = [26.0, 30.0, 34.0, 38.0, 42.0, 46.0, 51.0, 57.0, 64.0];

struct Iq2XxsBlocks;

impl BlockFormat<LEN, 66> for Iq2XxsBlocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::Iq2Xxs,
        block: (LEN, 66),
        codes: |block, codes| {
            for (i, codes) in codes.chunks_exact_mut(EIGHT).enumerate() {
                let group = &block[2 + i / 4 * 8..];
                let signs = even_signs(read_u32(&group[4..]) >> (i % 4 * 7));
                entry_codes([u16::from(group[i % 4])], signs, codes);
            }
        },
        scales: |block| {
            let mut scales = BlockScales { scale: read_bits(block), ..BlockScales::default() };
            for (group, scale) in scales.scales[..8].iter_mut().enumerate() {
                *scale = (block[9 + 8 * group] >> 4) as i8;
            }
            scales
        },
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; 66], out: &mut [f32; LEN]) {
        let d = read_f16(block);
        for (group, out) in block[2..].chunks_exact(8).zip(out.chunks_exact_mut(32)) {
            let word = read_u32(&group[4..]);
            let scale = scale(d, word >> 28);
            for (i, out) in out.chunks_exact_mut(EIGHT).enumerate() {
                let entry = GRID_XXS[usize::from(group[i])];
                write(out, entry, even_signs(word >> (7 * i)), scale);
            }
        }
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; 66]) {
        let book = Leveled { book: &BOOK_XXS, levels: &LEVELS };
        let values = Unsigned::of(values, Signs::Seven);
        let (d, steps) = fit_steps::<LEN, 32, 8>(&values.block, STEPS, book);
        store_f16(d, block);
        for (g, (step, out)) in steps.iter().zip(block[2..].chunks_exact_mut(8)).enumerate() {
            let (scale, mut word) = (STEPS.scale(d, *step), (*step as u32) << 28);
            for (i, number) in out[..4].iter_mut().enumerate() {
                let (entries, signs) = values.store(4 * g + i, book, scale);
                *number = entries[0] as u8;
                word |= u32::from(signs & 127) << (7 * i);
            }
            out[4..].copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// The factor, the steps and, for each eight, its entry and signs, of scales for 16 values.
#[inline(always)]
fn fit_16(
    values: &WeightedBlock<LEN>,
    book: Leveled<'_, EIGHT, 3>,
    signs: Signs,
    mut store: impl FnMut(usize, u16, u8),
) -> (half::f16, [f32; 16]) {
    let values = Unsigned::of(values, signs);
    let (d, steps) = fit_steps::<LEN, 16, 16>(&values.block, STEPS, book);
    for i in 0..LEN / EIGHT {
        let (entries, signs) = values.store(i, book, STEPS.scale(d, steps[i / 2]));
        store(i, entries[0], signs);
    }
    (d, steps)
}

/// The inverse of [`nibble`].
#[inline(always)]
pub(super) fn pack_steps(steps: &[f32], bytes: &mut [u8]) {
    for (byte, pair) in bytes.iter_mut().zip(steps.chunks_exact(2)) {
        *byte = pair[0] as u8 | (pair[1] as u8) << 4;
    }
}

/// Scales of which `N` nibbles say the steps.
#[inline(always)]
pub(super) fn nibble_scales<const N: usize>(factor: u16, nibbles: &[u8]) -> BlockScales {
    let mut scales = BlockScales { scale: factor, ..BlockScales::default() };
    for (i, scale) in scales.scales[..N].iter_mut().enumerate() {
        *scale = nibble(nibbles, i) as i8;
    }
    scales
}

struct Iq2XsBlocks;

impl BlockFormat<LEN, 74> for Iq2XsBlocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::Iq2Xs,
        block: (LEN, 74),
        codes: |block, codes| {
            for (i, codes) in codes.chunks_exact_mut(EIGHT).enumerate() {
                let word = read_bits(&block[2 + 2 * i..]);
                entry_codes([word & 511], even_signs(u32::from(word >> 9)), codes);
            }
        },
        scales: |block| nibble_scales::<16>(read_bits(block), &block[66..]),
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; 74], out: &mut [f32; LEN]) {
        let d = read_f16(block);
        for (i, out) in out.chunks_exact_mut(EIGHT).enumerate() {
            let word = read_bits(&block[2 + 2 * i..]);
            let scale = scale(d, nibble(&block[66..], i / 2));
            write(out, GRID_XS[usize::from(word & 511)], even_signs(u32::from(word >> 9)), scale);
        }
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; 74]) {
        let book = Leveled { book: &BOOK_XS, levels: &LEVELS };
        let (d, steps) = fit_16(values, book, Signs::Seven, |i, entry, signs| {
            let word = entry | u16::from(signs & 127) << 9;
            block[2 + 2 * i..][..2].copy_from_slice(&word.to_le_bytes());
        });
        store_f16(d, block);
        pack_steps(&steps, &mut block[66..]);
    }
}

struct Iq2SBlocks;

impl BlockFormat<LEN, 82> for Iq2SBlocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::Iq2S,
        block: (LEN, 82),
        codes: |block, codes| {
            for (i, codes) in codes.chunks_exact_mut(EIGHT).enumerate() {
                let high = u16::from(block[66 + i / 4] >> (2 * (i % 4)) & 3);
                entry_codes([u16::from(block[2 + i]) | high << 8], block[34 + i], codes);
            }
        },
        scales: |block| nibble_scales::<16>(read_bits(block), &block[74..]),
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; 82], out: &mut [f32; LEN]) {
        let d = read_f16(block);
        for (i, out) in out.chunks_exact_mut(EIGHT).enumerate() {
            let high = u16::from(block[66 + i / 4] >> (2 * (i % 4)) & 3);
            let entry = GRID_S[usize::from(u16::from(block[2 + i]) | high << 8)];
            write(out, entry, block[34 + i], scale(d, nibble(&block[74..], i / 2)));
        }
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; 82]) {
        let book = Leveled { book: &BOOK_S, levels: &LEVELS };
        let (d, steps) = fit_16(values, book, Signs::Eight, |i, entry, signs| {
            block[2 + i] = entry as u8;
            block[34 + i] = signs;
            block[66 + i / 4] |= ((entry >> 8) as u8) << (2 * (i % 4));
        });
        store_f16(d, block);
        pack_steps(&steps, &mut block[74..]);
    }
}
