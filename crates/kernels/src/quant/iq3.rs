//! IQ3_XXS and IQ3_S: fours of values as entries of a codebook with separate signs, under an
//! f16 factor and a four-bit scale per 32 values. Follows `dequantize_row_iq3_xxs` and
//! `dequantize_row_iq3_s` of ggml.

use super::fit::{Book, Leveled, Signs, StepGrid, Unsigned, WeightedBlock, fit_steps, store_f16};
use super::grids::{IQ3_S as GRID_S, IQ3_XXS as GRID_XXS};
use super::iq2::{EIGHT, even_signs, nibble, nibble_scales, pack_steps, read_u32, signed};
use crate::lanes::widen::Widen;
use crate::quant::block_format::BlockFormat;
use crate::quant::codes::{read_bits, read_f16};
use crate::quant::packing::{BlockScales, CodeLayout, Packing, entry_codes, packing};
use crate::quant::quant_type::QuantType;
use std::sync::LazyLock;

const LEN: usize = 256;
const GROUP_LEN: usize = 32;
/// Values of a codebook entry.
const FOUR: usize = 4;
/// Magnitudes in the codebooks.
pub(crate) const LEVELS_XXS: [f32; 8] = [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0];
pub(crate) const LEVELS_S: [f32; 8] = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0];

/// Entries of eight bits and signs of seven per eight: `value = d * (scale + 0.5) / 2 * entry`.
pub static IQ3_XXS: QuantType = QuantType::of::<Iq3XxsBlocks, LEN, 98>("iq3_xxs", 18);

/// Entries of nine bits and a sign for each value: `value = d * (2 * scale + 1) * entry`.
pub static IQ3_S: QuantType = QuantType::of::<Iq3SBlocks, LEN, 110>("iq3_s", 21);

/// Two entries of four values each.
#[inline(always)]
fn write(out: &mut [f32], entries: [u16; 2], signs: u8, scale: f32, levels: &[f32; 8]) {
    for (i, out) in out.iter_mut().enumerate() {
        let code = entries[i / 4] >> (3 * (i % 4)) & 7;
        *out = signed(scale * levels[usize::from(code)], signs, i);
    }
}

static BOOK_XXS: LazyLock<Book<FOUR, 8>> = LazyLock::new(|| Book::new(&GRID_XXS, 3));
static BOOK_S: LazyLock<Book<FOUR, 8>> = LazyLock::new(|| Book::new(&GRID_S, 3));

const STEPS_XXS: StepGrid = StepGrid { part: 0.5, most: 15.0, reaches: &REACHES_XXS };
const STEPS_S: StepGrid = StepGrid { part: 2.0, most: 15.0, reaches: &REACHES_S };
/// Where the value of largest magnitude is tried.
const REACHES_XXS: [f32; 9] = [38.0, 42.0, 46.0, 50.0, 54.0, 58.0, 62.0, 68.0, 75.0];
const REACHES_S: [f32; 9] = [10.0, 11.0, 12.0, 13.0, 13.7, 14.4, 15.2, 16.5, 18.0];

struct Iq3XxsBlocks;

impl BlockFormat<LEN, 98> for Iq3XxsBlocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::Iq3Xxs,
        block: (LEN, 98),
        codes: |block, codes| {
            for (i, codes) in codes.chunks_exact_mut(EIGHT).enumerate() {
                let numbers = [block[2 + 2 * i], block[3 + 2 * i]].map(u16::from);
                let signs = read_u32(&block[66 + i / 4 * 4..]) >> (i % 4 * 7);
                entry_codes(numbers, even_signs(signs), codes);
            }
        },
        scales: |block| {
            let mut scales = BlockScales { scale: read_bits(block), ..BlockScales::default() };
            for (group, scale) in scales.scales[..LEN / GROUP_LEN].iter_mut().enumerate() {
                *scale = (block[69 + 4 * group] >> 4) as i8;
            }
            scales
        },
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; 98], out: &mut [f32; LEN]) {
        let d = read_f16(block);
        for (group, out) in out.chunks_exact_mut(GROUP_LEN).enumerate() {
            let word = read_u32(&block[66 + 4 * group..]);
            let scale = d * (0.5 + (word >> 28) as f32) * 0.5;
            for (i, out) in out.chunks_exact_mut(EIGHT).enumerate() {
                let codes = &block[2 + 8 * group + 2 * i..];
                let entries = [0, 1].map(|half| GRID_XXS[usize::from(codes[half])]);
                write(out, entries, even_signs(word >> (7 * i)), scale, &LEVELS_XXS);
            }
        }
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; 98]) {
        let book = Leveled { book: &BOOK_XXS, levels: &LEVELS_XXS };
        let values = Unsigned::of(values, Signs::Seven);
        let (d, steps) = fit_steps::<LEN, GROUP_LEN, 8>(&values.block, STEPS_XXS, book);
        store_f16(d, block);
        for (g, step) in steps.iter().enumerate() {
            let mut word = (*step as u32) << 28;
            for i in 0..4 {
                let (at, scale) = (4 * g + i, STEPS_XXS.scale(d, *step));
                let (entries, signs) = values.store(at, book, scale);
                block[2 + 2 * at] = entries[0] as u8;
                block[3 + 2 * at] = entries[1] as u8;
                word |= u32::from(signs & 127) << (7 * i);
            }
            block[66 + 4 * g..][..4].copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// The number of an entry of an IQ3_S block.
#[inline(always)]
fn number(block: &[u8; 110], four: usize) -> u16 {
    let high = block[66 + four / 8] >> (four % 8) & 1;
    u16::from(block[2 + four]) | u16::from(high) << 8
}

struct Iq3SBlocks;

impl BlockFormat<LEN, 110> for Iq3SBlocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::Iq3S,
        block: (LEN, 110),
        codes: |block, codes| {
            for (i, codes) in codes.chunks_exact_mut(EIGHT).enumerate() {
                entry_codes([number(block, 2 * i), number(block, 2 * i + 1)], block[74 + i], codes);
            }
        },
        scales: |block| nibble_scales::<8>(read_bits(block), &block[106..]),
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; 110], out: &mut [f32; LEN]) {
        let d = read_f16(block);
        for (i, out) in out.chunks_exact_mut(EIGHT).enumerate() {
            let scale = d * (1 + 2 * nibble(&block[106..], i / 4)) as f32;
            let entries = [2 * i, 2 * i + 1].map(|four| GRID_S[usize::from(number(block, four))]);
            write(out, entries, block[74 + i], scale, &LEVELS_S);
        }
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; 110]) {
        let book = Leveled { book: &BOOK_S, levels: &LEVELS_S };
        let values = Unsigned::of(values, Signs::Eight);
        let (d, steps) = fit_steps::<LEN, GROUP_LEN, 8>(&values.block, STEPS_S, book);
        store_f16(d, block);
        pack_steps(&steps, &mut block[106..]);
        for i in 0..LEN / EIGHT {
            let scale = STEPS_S.scale(d, steps[i / 4]);
            let (entries, signs) = values.store(i, book, scale);
            block[74 + i] = signs;
            for (four, entry) in (2 * i..).zip(entries) {
                block[2 + four] = entry as u8;
                block[66 + four / 8] |= ((entry >> 8) as u8) << (four % 8);
            }
        }
    }
}
