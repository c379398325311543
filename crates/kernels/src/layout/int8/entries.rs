//! Planes of the numbers of codebook entries, and of signs.
//!
//! An entry is gathered from a table of words, one for each entry: a byte has the level of a code
//! in its low nibble and, where entries have eight codes, that of the code four after it in the
//! high one. Level and sign together choose one of sixteen codes, which are around a power of two.
#![allow(unsafe_code)]

use super::parts::{PLANE, Planes, bit_to};
use crate::lanes::int::IntRows;
use crate::quant::{IQ2_LEVELS, IQ3_S_LEVELS, IQ3_XXS_LEVELS, grids};

/// Entries of eight codes with two bits each.
static IQ1: [u32; 2048] = table::<_, 2>(&grids::IQ1);
static IQ2_XXS: [u32; 256] = table::<_, 2>(&grids::IQ2_XXS);
static IQ2_XS: [u32; 512] = table::<_, 2>(&grids::IQ2_XS);
static IQ2_S: [u32; 1024] = table::<_, 2>(&grids::IQ2_S);
/// Entries of four codes with three bits each.
static IQ3_XXS: [u32; 256] = table::<_, 3>(&grids::IQ3_XXS);
static IQ3_S: [u32; 512] = table::<_, 3>(&grids::IQ3_S);

/// The words of entries of as many codes of `BITS` bits as 16 bits hold, eight or four.
const fn table<const N: usize, const BITS: u32>(grid: &[u16; N]) -> [u32; N] {
    let mut words = [0; N];
    let mut at = 0;
    while at < N {
        let mut code = 0;
        while code < 16 / BITS / 4 * 4 {
            let level = (grid[at] >> (BITS * code)) as u32 & ((1 << BITS) - 1);
            words[at] |= level << (code % 4 * 8 + code / 4 * 4);
            code += 1;
        }
        at += 1;
    }
    words
}

/// Codes around `zero` of `LEN` levels, then of those negated from `half` on.
const fn signed<const LEN: usize>(levels: &[f32; LEN], zero: i8, half: usize) -> [i8; 16] {
    let mut codes = [zero; 16];
    let mut at = 0;
    while at < LEN {
        codes[at] = zero + levels[at] as i8;
        codes[half + at] = zero - levels[at] as i8;
        at += 1;
    }
    codes
}

/// The largest of codes.
const fn largest(codes: &[i8; 16]) -> u32 {
    let (mut largest, mut at) = (0, 0);
    while at < codes.len() {
        if codes[at] as u32 > largest {
            largest = codes[at] as u32;
        }
        at += 1;
    }
    largest
}

const CODES_1: [i8; 16] = [9, 17, 25, 16, 7, 15, 23, 16, 16, 16, 16, 16, 16, 16, 16, 16];
const CODES_2: [i8; 16] = signed(&IQ2_LEVELS, 64, 4);
const CODES_3: [[i8; 16]; 2] = [signed(&IQ3_XXS_LEVELS, 64, 8), signed(&IQ3_S_LEVELS, 16, 8)];

/// Codes around 2 to the power `zero`, raised as [`Planes::raise`].
const fn raised<I: IntRows>(codes: &[i8; 16], zero: u32) -> [i8; 16] {
    let mut raised = *codes;
    let mut at = 0;
    while let (Some(centre), true) = (I::CENTRE, at < codes.len()) {
        raised[at] = (codes[at].cast_unsigned() << (centre - zero)).cast_signed();
        at += 1;
    }
    raised
}

/// The number of the entry that begins with `quad`, as `RowSpan::codes` has it.
#[inline(always)]
fn number(quad: u32) -> u32 {
    quad & 0x7f | (quad >> 8 & 0x7f) << 7
}

/// Signs: bit `j` of byte `i` is that of code `i` of quad `j`.
#[inline(always)]
fn signs(quads: [u32; 8]) -> u32 {
    let signs = quads.iter().enumerate().map(|(j, quad)| (quad >> 7 & 0x0101_0101) << j);
    signs.fold(0, |all, signs| all | signs)
}

/// The low bytes of four numbers.
#[inline(always)]
fn low_bytes(numbers: [u32; 4]) -> u32 {
    u32::from_le_bytes(numbers.map(|number| number as u8))
}

/// The bits from `from` on of each word, moved to the bits `mask`, which begin with `to`.
#[inline(always)]
fn bits_to<I: IntRows>(words: I::Codes, from: u32, to: u32, mask: u32) -> I::Codes {
    match from <= to {
        true => I::lifted(words, to - from, mask),
        false => I::bits(words, from - to, mask),
    }
}

/// The narrow bytes of the rows from `row` on, after `P`'s words.
///
/// # Safety
/// As [`Planes::held`].
#[inline(always)]
unsafe fn narrow<I: IntRows, P: Planes, const BYTES: usize>(
    words: *const u8,
    row: usize,
) -> I::Codes {
    // SAFETY: the caller's promise; `words` is at row `row` of the first plane.
    unsafe { I::narrow_at::<BYTES>(words.sub(4 * row).add(P::WORDS * PLANE + BYTES * row)) }
}

/// Entries of eight codes: four bytes of numbers, a plane of signs. Of numbers of nine bits the
/// highest are where the signs of each eighth code would be, which make the number of signs even;
/// of ten bits the two highest are in a narrow byte.
pub(super) struct Eights<const BITS: u32>;

/// The signs of each eighth code in a plane of signs.
const EIGHTH_SIGNS: u32 = 0xaa00_0000;

/// A plane of signs with those of each eighth code, which make the number of signs even.
#[inline(always)]
fn even<I: IntRows>(plane: I::Codes) -> I::Codes {
    let signs = I::bits(plane, 0, !EIGHTH_SIGNS);
    let halves = I::differ(signs, I::bits(signs, 16, u32::MAX));
    let bytes = I::differ(halves, I::bits(halves, 8, u32::MAX));
    let parity = I::differ(bytes, I::bits(bytes, 1, u32::MAX));
    // Bit `2 * e` is the parity of eight `e`.
    I::either(signs, I::lifted(parity, 25, EIGHTH_SIGNS))
}

impl<const BITS: u32> Planes for Eights<BITS> {
    const WORDS: usize = 2;
    const NARROW: usize = if BITS == 10 { 1 } else { 0 };
    const COSTLY: bool = true;
    const MAX_CODE: u32 = largest(&CODES_2);
    const OFFSET: Option<u32> = Some(6);

    #[inline(always)]
    fn words(quads: [u32; 8]) -> [u32; 8] {
        let numbers = [number(quads[0]), number(quads[2]), number(quads[4]), number(quads[6])];
        let mut words = [low_bytes(numbers), signs(quads), 0, 0, 0, 0, 0, 0];
        let mut high = 0;
        for (eight, number) in numbers.into_iter().enumerate() {
            high |= (number >> 8) << (2 * eight);
        }
        match BITS {
            9 => words[1] = words[1] & !EIGHTH_SIGNS | high << 25,
            _ => words[2] = high,
        }
        words
    }

    /// Low bytes of numbers, signs, and where the high bits of numbers are.
    type Held<I: IntRows> = [I::Codes; 3];

    #[inline(always)]
    unsafe fn held<I: IntRows>(words: *const u8, row: usize) -> [I::Codes; 3] {
        // SAFETY: the caller's promise.
        unsafe {
            let (low, plane) = (I::codes_at(words), I::codes_at(words.add(PLANE)));
            match BITS {
                9 => [low, even::<I>(plane), plane],
                10 => [low, plane, narrow::<I, Self, 1>(words, row)],
                _ => [low, plane, plane],
            }
        }
    }

    #[inline(always)]
    unsafe fn codes<I: IntRows, const J: usize>([low, plane, high]: [I::Codes; 3]) -> I::Codes {
        let eight = J as u32 / 2;
        let low = I::bits(low, 8 * eight, 255);
        let entry = match BITS {
            8 => I::gather(&IQ2_XXS, low),
            9 => {
                let high = bits_to::<I>(high, 25 + 2 * eight, 8, 0x100);
                I::gather(&IQ2_XS, I::either(low, high))
            }
            _ => I::gather(&IQ2_S, I::either(low, bits_to::<I>(high, 2 * eight, 8, 0x300))),
        };
        let level = I::field(entry, J as u32 % 2 * 4, 3);
        I::lookup(
            const { &raised::<I>(&CODES_2, 6) },
            I::either(level, bit_to::<I>(plane, J as u32, 2)),
        )
    }
}

/// Entries of eight codes that move up or down by an eighth, in eighths: four bytes of numbers;
/// then 16 bits with the three highest of each number and, from bit 12 on, whether it moves down.
pub(super) struct MovedEights;

impl Planes for MovedEights {
    const WORDS: usize = 1;
    const NARROW: usize = 2;
    const COSTLY: bool = true;
    const MAX_CODE: u32 = largest(&CODES_1);
    const OFFSET: Option<u32> = Some(4);

    #[inline(always)]
    fn words(quads: [u32; 8]) -> [u32; 8] {
        let entries = [quads[0], quads[2], quads[4], quads[6]];
        let mut high = 0;
        for (eight, quad) in entries.into_iter().enumerate() {
            high |= (number(quad) >> 8) << (3 * eight) | (quad >> 7 & 1) << (12 + eight);
        }
        [low_bytes(entries.map(number)), high, 0, 0, 0, 0, 0, 0]
    }

    /// Low bytes of numbers, the 16 bits, and their second byte in all four.
    type Held<I: IntRows> = [I::Codes; 3];

    #[inline(always)]
    unsafe fn held<I: IntRows>(words: *const u8, row: usize) -> [I::Codes; 3] {
        // SAFETY: the caller's promise.
        let (low, high) = unsafe { (I::codes_at(words), narrow::<I, Self, 2>(words, row)) };
        let two = I::either(I::bits(high, 8, u32::MAX), I::bits(high, 0, 0xff00));
        [low, high, I::either(two, I::lifted(two, 16, u32::MAX))]
    }

    #[inline(always)]
    unsafe fn codes<I: IntRows, const J: usize>([low, high, moves]: [I::Codes; 3]) -> I::Codes {
        let eight = J as u32 / 2;
        let high = bits_to::<I>(high, 3 * eight, 8, 0x700);
        let entry = I::gather(&IQ1, I::either(I::bits(low, 8 * eight, 255), high));
        let level = I::field(entry, J as u32 % 2 * 4, 3);
        I::lookup(
            const { &raised::<I>(&CODES_1, 4) },
            I::either(level, bit_to::<I>(moves, 4 + eight, 2)),
        )
    }
}

/// Entries of four codes: eight bytes of numbers, a plane of signs and, of numbers of nine bits,
/// the highest in a narrow byte.
pub(super) struct Fours<const BITS: u32>;

impl<const BITS: u32> Fours<BITS> {
    const CODES: [i8; 16] = CODES_3[if BITS == 9 { 1 } else { 0 }];
    const ZERO: u32 = if BITS == 9 { 4 } else { 6 };
}

impl<const BITS: u32> Planes for Fours<BITS> {
    const WORDS: usize = 3;
    const NARROW: usize = if BITS == 9 { 1 } else { 0 };
    const COSTLY: bool = true;
    const MAX_CODE: u32 = largest(&Self::CODES);
    const OFFSET: Option<u32> = Some(Self::ZERO);

    #[inline(always)]
    fn words(quads: [u32; 8]) -> [u32; 8] {
        let [a, b, c, d, e, f, g, h] = quads.map(number);
        let mut high = 0;
        for (j, quad) in quads.into_iter().enumerate() {
            high |= (number(quad) >> 8) << j;
        }
        [low_bytes([a, b, c, d]), low_bytes([e, f, g, h]), signs(quads), high, 0, 0, 0, 0]
    }

    /// Low bytes of numbers, signs, and the high bits of numbers.
    type Held<I: IntRows> = [I::Codes; 4];

    #[inline(always)]
    unsafe fn held<I: IntRows>(words: *const u8, row: usize) -> [I::Codes; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let (low, more) = (I::codes_at(words), I::codes_at(words.add(PLANE)));
            let plane = I::codes_at(words.add(2 * PLANE));
            let high = if BITS == 9 { narrow::<I, Self, 1>(words, row) } else { plane };
            [low, more, plane, high]
        }
    }

    #[inline(always)]
    unsafe fn codes<I: IntRows, const J: usize>(held: [I::Codes; 4]) -> I::Codes {
        let low = I::bits(held[J / 4], J as u32 % 4 * 8, 255);
        let level = match BITS {
            9 => {
                let high = bits_to::<I>(held[3], J as u32, 8, 0x100);
                I::gather(&IQ3_S, I::either(low, high))
            }
            _ => I::gather(&IQ3_XXS, low),
        };
        I::lookup(
            const { &raised::<I>(&Self::CODES, Self::ZERO) },
            I::either(level, bit_to::<I>(held[2], J as u32, 3)),
        )
    }
}
