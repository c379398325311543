//! Parts of code layouts: planes of code bits, and scales.
#![allow(unsafe_code)]

use crate::lanes::int::IntRows;
use crate::lanes::widen::LanePart;
use crate::layout::operands::GROUP;
use crate::quant::{BlockScales, FLOATS_DOUBLED, IQ4_LEVELS, SPAN};

/// Layout of the bits of 32 codes: `WORDS` words per row, each with bits of up to eight quads, then
/// `NARROW` bytes per row.
pub(super) trait Planes {
    /// Words of a block of one row.
    const WORDS: usize;
    /// Bytes after the words: 0, 1 or 2.
    const NARROW: usize = 0;
    /// The largest magnitude of a code.
    const MAX_CODE: u32;
    /// Codes are signed bytes.
    const SIGNED: bool = false;
    /// Codes are bytes already.
    const BYTES: bool = false;
    /// Codes cost more than the products of a few rows with them.
    const COSTLY: bool = false;
    /// Zero is this power of two, if any, where there is no centre ([`IntRows::CENTRE`]).
    const OFFSET: Option<u32> = None;

    /// The words of eight quads of codes; the first `WORDS` count, and the low bytes of the next if
    /// there are narrow ones.
    fn words(quads: [u32; 8]) -> [u32; 8];

    /// How far codes are shifted to the left, so that their zero is the centre.
    #[inline(always)]
    fn raise<I: IntRows>() -> u32 {
        match (I::CENTRE, Self::OFFSET) {
            (Some(centre), Some(offset)) => centre - offset,
            _ => 0,
        }
    }

    /// What the codes of a block are computed from.
    type Held<I: IntRows>: Copy;

    /// What is held for the codes of the rows from `row` on, whose first words are at `words`.
    ///
    /// # Safety
    /// The words of these rows must be readable, `WORDS` times, 64 bytes apart, and their narrow
    /// bytes after the words of all rows.
    unsafe fn held<I: IntRows>(words: *const u8, row: usize) -> Self::Held<I>;

    /// The codes of quad `J` of these rows, raised.
    ///
    /// # Safety
    /// As `held`.
    unsafe fn codes<I: IntRows, const J: usize>(held: Self::Held<I>) -> I::Codes;
}

/// The power of two that codes are around, if any.
#[inline(always)]
pub(super) fn zero<I: IntRows, P: Planes>() -> Option<u32> {
    match I::CENTRE {
        Some(centre) => (P::SIGNED || P::OFFSET.is_some()).then_some(centre),
        None => P::OFFSET,
    }
}

/// A table of signed codes as [`IntRows::signed`] makes them.
pub(super) const fn signed_table<I: IntRows>(table: &[i8; 16]) -> [i8; 16] {
    let mut codes = *table;
    let mut at = 0;
    while at < codes.len() && I::CENTRE.is_some() {
        codes[at] ^= i8::MIN;
        at += 1;
    }
    codes
}

/// Planes that read the words of each quad when they need them.
macro_rules! words_are_read {
    () => {
        type Held<I: IntRows> = *const u8;

        #[inline(always)]
        unsafe fn held<I: IntRows>(words: *const u8, _row: usize) -> *const u8 {
            words
        }
    };
}
pub(super) use words_are_read;

/// Sixteen words.
pub(super) const PLANE: usize = 4 * GROUP;

/// Signed bytes.
pub(super) struct SignedBytes;

impl Planes for SignedBytes {
    const WORDS: usize = 8;
    const MAX_CODE: u32 = 128;
    const SIGNED: bool = true;
    const BYTES: bool = true;

    #[inline(always)]
    fn words(quads: [u32; 8]) -> [u32; 8] {
        quads
    }

    words_are_read!();

    #[inline(always)]
    unsafe fn codes<I: IntRows, const J: usize>(words: *const u8) -> I::Codes {
        // SAFETY: the caller's promise.
        I::signed(unsafe { I::codes_at(words.add(J * PLANE)) })
    }
}

/// The low four bits of codes, quads `j` and `j + 4` sharing a word.
#[inline(always)]
fn nibble_words(quads: [u32; 8]) -> [u32; 4] {
    std::array::from_fn(|j| quads[j] & 0x0f0f_0f0f | (quads[j + 4] & 0x0f0f_0f0f) << 4)
}

/// The nibbles of quad `J`, moved to the bits from `to` on.
///
/// # Safety
/// 256 bytes must be readable.
#[inline(always)]
unsafe fn nibbles<I: IntRows, const J: usize>(block: *const u8, to: u32) -> I::Codes {
    // SAFETY: the caller's promise.
    let word = unsafe { I::codes_at(block.add(J % 4 * PLANE)) };
    moved::<I>(word, if J < 4 { 0 } else { 4 }, to, 15 << to)
}

/// The bits from `from` on of each byte, moved to the bits `mask`, which begin with `to`.
#[inline(always)]
pub(super) fn moved<I: IntRows>(words: I::Codes, from: u32, to: u32, mask: u8) -> I::Codes {
    match from < to {
        true => I::raised(words, to - from, mask),
        false => I::field(words, from - to, mask),
    }
}

/// Four bits in nibbles and `HIGH` bits above them, around `1 << OFFSET` (or 0, if `OFFSET` is 0).
pub(super) struct Nibbles<const HIGH: u32, const OFFSET: u32>;

impl<const HIGH: u32, const OFFSET: u32> Planes for Nibbles<HIGH, OFFSET> {
    const WORDS: usize = 4 + HIGH as usize;
    const MAX_CODE: u32 = (16 << HIGH) - 1;
    const OFFSET: Option<u32> = if OFFSET == 0 { None } else { Some(OFFSET) };

    #[inline(always)]
    fn words(quads: [u32; 8]) -> [u32; 8] {
        let mut words = [0; 8];
        words[..4].copy_from_slice(&nibble_words(quads));
        for (j, quad) in quads.into_iter().enumerate() {
            match HIGH {
                1 => words[4] |= (quad >> 4 & 0x0101_0101) << j,
                2 => words[4 + j / 4] |= (quad >> 4 & 0x0303_0303) << (j % 4 * 2),
                _ => {}
            }
        }
        words
    }

    words_are_read!();

    #[inline(always)]
    unsafe fn codes<I: IntRows, const J: usize>(words: *const u8) -> I::Codes {
        // SAFETY: the caller's promise.
        unsafe {
            let to = Self::raise::<I>();
            let low = nibbles::<I, J>(words, to);
            match HIGH {
                1 => {
                    let plane = I::codes_at(words.add(4 * PLANE));
                    I::either(low, bit_to::<I>(plane, J as u32, 4 + to))
                }
                2 => {
                    let plane = I::codes_at(words.add((4 + J / 4) * PLANE));
                    let from = J as u32 % 4 * 2;
                    I::either(low, moved::<I>(plane, from, 4 + to, 0x30 << to))
                }
                _ => low,
            }
        }
    }
}

/// Bit `from` of each byte, moved to bit `to`.
#[inline(always)]
pub(super) fn bit_to<I: IntRows>(plane: I::Codes, from: u32, to: u32) -> I::Codes {
    moved::<I>(plane, from, to, 1 << to)
}

/// Two bits, four quads to a word, and `HIGH` bits above them, around `1 << OFFSET` (or 0, if
/// `OFFSET` is 0).
pub(super) struct TwoBits<const HIGH: u32, const OFFSET: u32>;

impl<const HIGH: u32, const OFFSET: u32> Planes for TwoBits<HIGH, OFFSET> {
    const WORDS: usize = 2 + HIGH as usize;
    const MAX_CODE: u32 = (4 << HIGH) - 1;
    const OFFSET: Option<u32> = if OFFSET == 0 { None } else { Some(OFFSET) };

    #[inline(always)]
    fn words(quads: [u32; 8]) -> [u32; 8] {
        let mut words = [0; 8];
        for (j, quad) in quads.into_iter().enumerate() {
            words[j / 4] |= (quad & 0x0303_0303) << (j % 4 * 2);
            if HIGH == 1 {
                words[2] |= (quad >> 2 & 0x0101_0101) << j;
            }
        }
        words
    }

    words_are_read!();

    #[inline(always)]
    unsafe fn codes<I: IntRows, const J: usize>(words: *const u8) -> I::Codes {
        // SAFETY: the caller's promise.
        unsafe {
            let to = Self::raise::<I>();
            let plane = I::codes_at(words.add(J / 4 * PLANE));
            let low = moved::<I>(plane, J as u32 % 4 * 2, to, 3 << to);
            match HIGH {
                1 => {
                    let plane = I::codes_at(words.add(2 * PLANE));
                    I::either(low, bit_to::<I>(plane, J as u32, 2 + to))
                }
                _ => low,
            }
        }
    }
}

/// Two bits, four quads to a word, around one.
pub(super) struct Ternary;

impl Planes for Ternary {
    const WORDS: usize = TwoBits::<0, 0>::WORDS;
    const MAX_CODE: u32 = TwoBits::<0, 0>::MAX_CODE;
    const OFFSET: Option<u32> = Some(0);

    #[inline(always)]
    fn words(quads: [u32; 8]) -> [u32; 8] {
        TwoBits::<0, 0>::words(quads)
    }

    /// The largest code would be too large.
    #[inline(always)]
    fn raise<I: IntRows>() -> u32 {
        0
    }

    words_are_read!();

    #[inline(always)]
    unsafe fn codes<I: IntRows, const J: usize>(words: *const u8) -> I::Codes {
        // SAFETY: the caller's promise.
        let codes = unsafe { TwoBits::<0, 0>::codes::<I, J>(words) };
        const CODES: [i8; 16] = [-1, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        match I::CENTRE {
            Some(_) => I::lookup(const { &signed_table::<I>(&CODES) }, codes),
            None => codes,
        }
    }
}

/// Nibbles that index the levels of IQ4, or four-bit floats.
pub(super) struct Table<const FLOATS: bool>;

impl<const FLOATS: bool> Planes for Table<FLOATS> {
    const WORDS: usize = 4;
    const MAX_CODE: u32 = if FLOATS { 12 } else { 127 };
    const SIGNED: bool = true;

    #[inline(always)]
    fn words(quads: [u32; 8]) -> [u32; 8] {
        Nibbles::<0, 0>::words(quads)
    }

    words_are_read!();

    #[inline(always)]
    unsafe fn codes<I: IntRows, const J: usize>(words: *const u8) -> I::Codes {
        let table = match FLOATS {
            true => const { &signed_table::<I>(&FLOATS_DOUBLED) },
            false => const { &signed_table::<I>(&IQ4_LEVELS) },
        };
        // SAFETY: the caller's promise.
        I::lookup(table, unsafe { nibbles::<I, J>(words, 0) })
    }
}

/// Which scales of a span are meant.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub block: usize,
    /// Half of the block; 0 without halves.
    pub half: usize,
    /// First of the rows.
    pub row: usize,
}

/// Scales, and minima where there are any, of sixteen rows.
pub(super) trait Scales {
    /// One scale for every 16 inputs instead of every 32.
    const HALVES: bool;
    /// Minima are subtracted.
    const MINS: bool;
    /// Bytes of a span.
    const BYTES: usize;
    /// Scales have at most 22 significant bits and are far from infinite.
    const SHORT: bool;

    /// Writes the scales of a quant block of row `row`; `block` is the first of its blocks within
    /// the span.
    fn store(from: &BlockScales, block: usize, row: usize, span: &mut [u8]);
    /// Scales of a block.
    ///
    /// # Safety
    /// `BYTES` bytes must be readable at `span`.
    unsafe fn scale<I: IntRows>(span: *const u8, at: At) -> I::Float;
    /// Minima of the same.
    ///
    /// # Safety
    /// As `scale`, and `MINS`.
    unsafe fn min<I: IntRows>(span: *const u8, at: At) -> I::Float;
}

/// A 16-bit scale for each block of 32, and a minimum with `MINS`; BF16 with `POWERS`, else f16.
pub(super) struct Each<const MINS: bool, const POWERS: bool>;

impl<const MINS: bool, const POWERS: bool> Each<MINS, POWERS> {
    const STRIDE: usize = 2 * GROUP * if MINS { 2 } else { 1 };
}

impl<const MINS: bool, const POWERS: bool> Scales for Each<MINS, POWERS> {
    const HALVES: bool = false;
    const MINS: bool = MINS;
    const BYTES: usize = SPAN * Self::STRIDE;
    const SHORT: bool = !POWERS;

    #[inline(always)]
    fn store(from: &BlockScales, block: usize, row: usize, span: &mut [u8]) {
        let at = block * Self::STRIDE + 2 * row;
        span[at..][..2].copy_from_slice(&from.scale.to_le_bytes());
        if MINS {
            span[at + 2 * GROUP..][..2].copy_from_slice(&from.min.to_le_bytes());
        }
    }

    #[inline(always)]
    unsafe fn scale<I: IntRows>(span: *const u8, at: At) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe {
            let at = span.add(at.block * Self::STRIDE + 2 * at.row).cast();
            if POWERS { I::Float::load_bf16_at(at) } else { I::Float::load_f16_at(at) }
        }
    }

    #[inline(always)]
    unsafe fn min<I: IntRows>(span: *const u8, at: At) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe {
            I::Float::load_f16_at(span.add(at.block * Self::STRIDE + 2 * (GROUP + at.row)).cast())
        }
    }
}

/// Byte scales for each 32 inputs, or each 16 with `HALVES`, under an f16 factor for the span:
/// the factor, with `MINS` that of the minima, then the scales, then the minima.
pub(super) struct Under<const HALVES: bool, const MINS: bool>;

impl<const HALVES: bool, const MINS: bool> Under<HALVES, MINS> {
    const PARTS: usize = if HALVES { 2 } else { 1 };
    const FACTORS: usize = 2 * GROUP * if MINS { 2 } else { 1 };
    const STEPS: usize = SPAN * Self::PARTS * GROUP;

    /// Offset of the steps of a block.
    #[inline(always)]
    fn step(block: usize, half: usize) -> usize {
        Self::FACTORS + (block * Self::PARTS + half) * GROUP
    }
}

impl<const HALVES: bool, const MINS: bool> Scales for Under<HALVES, MINS> {
    const HALVES: bool = HALVES;
    const MINS: bool = MINS;
    const BYTES: usize =
        (Self::FACTORS + Self::STEPS * if MINS { 2 } else { 1 }).next_multiple_of(64);
    const SHORT: bool = true;

    #[inline(always)]
    fn store(from: &BlockScales, _block: usize, row: usize, span: &mut [u8]) {
        span[2 * row..][..2].copy_from_slice(&from.scale.to_le_bytes());
        let mut store = |first: usize, values: &[i8; 16]| {
            for (i, value) in values[..SPAN * Self::PARTS].iter().enumerate() {
                span[first + i * GROUP + row] = *value as u8;
            }
        };
        store(Self::FACTORS, &from.scales);
        if MINS {
            store(Self::FACTORS + Self::STEPS, &from.mins);
            span[2 * (GROUP + row)..][..2].copy_from_slice(&from.min.to_le_bytes());
        }
    }

    #[inline(always)]
    unsafe fn scale<I: IntRows>(span: *const u8, at: At) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe {
            let steps =
                I::Float::load_i8_at(span.add(Self::step(at.block, at.half) + at.row).cast());
            I::Float::load_f16_at(span.add(2 * at.row).cast()).mul(steps)
        }
    }

    #[inline(always)]
    unsafe fn min<I: IntRows>(span: *const u8, at: At) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe {
            let steps = span.add(Self::step(at.block, at.half) + Self::STEPS + at.row);
            let factors = I::Float::load_f16_at(span.add(2 * (GROUP + at.row)).cast());
            factors.mul(I::Float::load_i8_at(steps.cast()))
        }
    }
}

/// Odd steps for each 32 inputs, or each 16 with `HALVES`, under an f16 factor for the span: the
/// factor, then nibbles `s` of two steps to a byte, worth `(2 * s + 1) * EIGHTHS / 8` factors.
pub(super) struct Odd<const HALVES: bool, const EIGHTHS: u32>;

impl<const HALVES: bool, const EIGHTHS: u32> Odd<HALVES, EIGHTHS> {
    const PARTS: usize = if HALVES { 2 } else { 1 };
    const FACTORS: usize = 2 * GROUP;
}

impl<const HALVES: bool, const EIGHTHS: u32> Scales for Odd<HALVES, EIGHTHS> {
    const HALVES: bool = HALVES;
    const MINS: bool = false;
    const BYTES: usize = Self::FACTORS + SPAN * Self::PARTS * GROUP / 2;
    const SHORT: bool = true;

    #[inline(always)]
    fn store(from: &BlockScales, _block: usize, row: usize, span: &mut [u8]) {
        span[2 * row..][..2].copy_from_slice(&from.scale.to_le_bytes());
        let steps = from.scales[..SPAN * Self::PARTS].as_chunks::<2>().0;
        for (i, [low, high]) in steps.iter().enumerate() {
            span[Self::FACTORS + i * GROUP + row] = (*low | *high << 4) as u8;
        }
    }

    #[inline(always)]
    unsafe fn scale<I: IntRows>(span: *const u8, at: At) -> I::Float {
        let index = at.block * Self::PARTS + at.half;
        let unit = EIGHTHS as f32 / 8.0;
        // SAFETY: the caller's promise.
        unsafe {
            let nibbles = span.add(Self::FACTORS + index / 2 * GROUP + at.row);
            let steps = I::Float::load_nibbles_at(nibbles, (index % 2 * 4) as u32);
            let steps = steps.mul_add(I::Float::splat(2.0 * unit), I::Float::splat(unit));
            I::Float::load_f16_at(span.add(2 * at.row).cast()).mul(steps)
        }
    }

    unsafe fn min<I: IntRows>(_span: *const u8, _at: At) -> I::Float {
        unreachable!("there are no minima");
    }
}

/// An f32 scale and a zero point for each block of 32: sixteen scales, then the zero points, as
/// bytes with `NARROW`, else as BF16, which holds integers up to 256.
pub(super) struct Zeros<const NARROW: bool>;

impl<const NARROW: bool> Zeros<NARROW> {
    const STRIDE: usize = 4 * GROUP + if NARROW { GROUP } else { 2 * GROUP };
}

impl<const NARROW: bool> Scales for Zeros<NARROW> {
    const HALVES: bool = false;
    const MINS: bool = true;
    const BYTES: usize = SPAN * Self::STRIDE;
    const SHORT: bool = false;

    #[inline(always)]
    fn store(from: &BlockScales, block: usize, row: usize, span: &mut [u8]) {
        let (scales, zeros) = span[block * Self::STRIDE..][..Self::STRIDE].split_at_mut(4 * GROUP);
        scales[4 * row..][..4].copy_from_slice(&from.wide.to_le_bytes());
        match NARROW {
            true => zeros[row] = from.zero as u8,
            false => {
                let bits = (f32::from(from.zero).to_bits() >> 16) as u16;
                zeros[2 * row..][..2].copy_from_slice(&bits.to_le_bytes());
            }
        }
    }

    #[inline(always)]
    unsafe fn scale<I: IntRows>(span: *const u8, at: At) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe { I::Float::load_at(span.add(at.block * Self::STRIDE + 4 * at.row).cast()) }
    }

    #[inline(always)]
    unsafe fn min<I: IntRows>(span: *const u8, at: At) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe {
            let zeros = span.add(at.block * Self::STRIDE + 4 * GROUP);
            let zeros = match NARROW {
                true => I::Float::load_i8_at(zeros.add(at.row).cast()),
                false => I::Float::load_bf16_at(zeros.add(2 * at.row).cast()),
            };
            Self::scale::<I>(span, at).mul(zeros)
        }
    }
}

/// E4M3 scales for each 16 inputs, under an f32 factor for each row: the factors, then the scales.
pub(super) struct UnderFactor;

impl UnderFactor {
    const FACTORS: usize = 4 * GROUP;

    /// Offset of the scales of half a block.
    #[inline(always)]
    fn step(block: usize, half: usize) -> usize {
        Self::FACTORS + (2 * block + half) * GROUP
    }
}

impl Scales for UnderFactor {
    const HALVES: bool = true;
    const MINS: bool = false;
    const BYTES: usize = Self::FACTORS + 2 * SPAN * GROUP;
    const SHORT: bool = false;

    #[inline(always)]
    fn store(from: &BlockScales, block: usize, row: usize, span: &mut [u8]) {
        // The last span of a row may have no more than this block.
        if block == 0 {
            span[4 * row..][..4].copy_from_slice(&from.wide.to_le_bytes());
        }
        for half in 0..2 {
            span[Self::step(block, half) + row] = from.scales[half] as u8;
        }
    }

    #[inline(always)]
    unsafe fn scale<I: IntRows>(span: *const u8, at: At) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe {
            let scales = span.add(Self::step(at.block, at.half) + at.row);
            let factors = I::Float::load_at(span.add(4 * at.row).cast());
            factors.mul(I::Float::load_e4m3_at(scales))
        }
    }

    unsafe fn min<I: IntRows>(_span: *const u8, _at: At) -> I::Float {
        unreachable!("there are no minima");
    }
}
