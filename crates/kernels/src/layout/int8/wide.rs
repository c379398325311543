//! Parts of the code layouts of quant blocks of 64 and 128 values: planes of single bits, and
//! scales that several blocks of 32 share or that each half of one has.
#![allow(unsafe_code)]

use super::parts::{At, Planes, Scales, bit_to, signed_table, words_are_read};
use crate::lanes::int::IntRows;
use crate::lanes::widen::LanePart;
use crate::layout::operands::GROUP;
use crate::quant::{BlockScales, SPAN};

/// One bit, all quads in a word: 1 where it is set, else -1.
pub(super) struct Signs;

impl Planes for Signs {
    const WORDS: usize = 1;
    const MAX_CODE: u32 = 2;
    const OFFSET: Option<u32> = Some(0);

    #[inline(always)]
    fn words(quads: [u32; 8]) -> [u32; 8] {
        let mut words = [0; 8];
        for (j, quad) in quads.into_iter().enumerate() {
            words[0] |= (quad & 0x0101_0101) << j;
        }
        words
    }

    /// The larger code would be too large.
    #[inline(always)]
    fn raise<I: IntRows>() -> u32 {
        0
    }

    words_are_read!();

    #[inline(always)]
    unsafe fn codes<I: IntRows, const J: usize>(words: *const u8) -> I::Codes {
        // SAFETY: the caller's promise.
        let plane = unsafe { I::codes_at(words) };
        const CODES: [i8; 16] = [-1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        match I::CENTRE {
            Some(_) => {
                I::lookup(const { &signed_table::<I>(&CODES) }, bit_to::<I>(plane, J as u32, 0))
            }
            // Around one.
            None => bit_to::<I>(plane, J as u32, 1),
        }
    }
}

/// An f16 scale for each quant block of `BLOCKS` blocks of 32.
pub(super) struct SharedScale<const BLOCKS: usize>;

impl<const BLOCKS: usize> SharedScale<BLOCKS> {
    const STRIDE: usize = 2 * GROUP;
}

impl<const BLOCKS: usize> Scales for SharedScale<BLOCKS> {
    const HALVES: bool = false;
    const MINS: bool = false;
    const BYTES: usize = SPAN / BLOCKS * Self::STRIDE;
    const SHORT: bool = true;

    #[inline(always)]
    fn store(from: &BlockScales, block: usize, row: usize, span: &mut [u8]) {
        span[block * Self::STRIDE + 2 * row..][..2].copy_from_slice(&from.scale.to_le_bytes());
    }

    #[inline(always)]
    unsafe fn scale<I: IntRows>(span: *const u8, at: At) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe {
            let at = span.add(at.block / BLOCKS * Self::STRIDE + 2 * at.row);
            I::Float::load_f16_at(at.cast())
        }
    }

    unsafe fn min<I: IntRows>(_span: *const u8, _at: At) -> I::Float {
        unreachable!("there are no minima");
    }
}

/// E4M3 scales for each 16 inputs, four to a quant block, halved because codes are doubled.
pub(super) struct Runs;

impl Scales for Runs {
    const HALVES: bool = true;
    const MINS: bool = false;
    const BYTES: usize = 2 * SPAN * GROUP;
    const SHORT: bool = true;

    #[inline(always)]
    fn store(from: &BlockScales, block: usize, row: usize, span: &mut [u8]) {
        for (run, scale) in from.scales[..4].iter().enumerate() {
            span[(4 * block + run) * GROUP + row] = *scale as u8;
        }
    }

    #[inline(always)]
    unsafe fn scale<I: IntRows>(span: *const u8, at: At) -> I::Float {
        // SAFETY: the caller's promise.
        let scales =
            unsafe { I::Float::load_e4m3_at(span.add((2 * at.block + at.half) * GROUP + at.row)) };
        scales.mul(I::Float::splat(0.5))
    }

    unsafe fn min<I: IntRows>(_span: *const u8, _at: At) -> I::Float {
        unreachable!("there are no minima");
    }
}
