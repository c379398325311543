//! How values are rounded before they are cached, in models that were trained with it (DeepSeek
//! V4): to E4M3 or E2M1 codes under a power of two for each block of consecutive values.
//!
//! The power is the smallest under which the largest value of the block is not above the largest
//! code. Codes are the nearest, of two as near the even one. Values that the largest code would
//! take beyond f32 get the largest code that does not; a block with a value that is not finite
//! becomes NaN; nothing is rounded to minus zero. Rounding what is rounded changes nothing, except
//! that [`Rounding::Fp4`] begins with a transform.
//!
//! The arithmetic is plain f32, exact except for the rounding, so every instruction set has the
//! same bits.

use super::scale::largest;
use crate::isa::Isa;
use crate::lanes::widen::Widen;
use crate::lanes::{Kernel, run_on};

/// How values are rounded before they are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// Not at all.
    None,
    /// To E4M3, 64 values to a block, all but the last `rotated` values of a row.
    Fp8 {
        /// Values at the end of a row that stay as they are.
        rotated: usize,
    },
    /// To E2M1, 32 values to a block, after a Walsh-Hadamard transform of the whole row.
    Fp4,
}

impl Rounding {
    /// Whether rows of `dim` values can be rounded so.
    pub fn fits(self, dim: usize) -> bool {
        match self {
            Self::None => true,
            Self::Fp8 { rotated } => rotated <= dim,
            Self::Fp4 => dim.is_power_of_two(),
        }
    }

    #[inline(always)]
    fn codes(self) -> &'static CodeType {
        match self {
            Self::None | Self::Fp8 { .. } => &E4M3,
            Self::Fp4 => &E2M1,
        }
    }

    /// Number of rounded values of a row of `dim` values, its first ones.
    pub(crate) fn rounded(self, dim: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Fp8 { rotated } => dim - rotated,
            Self::Fp4 => dim,
        }
    }

    /// Rounded values that share a scale.
    pub(crate) fn block(self) -> usize {
        self.codes().block
    }

    /// Blocks of a row.
    pub(crate) fn blocks(self, dim: usize) -> usize {
        self.rounded(dim).div_ceil(self.block())
    }

    /// Bytes of the codes of a row.
    pub(crate) fn code_bytes(self, dim: usize) -> usize {
        (self.rounded(dim) * self.codes().bits).div_ceil(8)
    }

    /// The scale of a block: a power of two, or NaN if a value is not finite.
    #[inline(always)]
    pub(crate) fn scale(self, block: &[f32]) -> f32 {
        self.codes().scale(block)
    }

    /// Codes of rounded values, as [`PlainRows`](super::PlainRows) have them, and the bytes of
    /// their scales.
    pub(crate) fn pack(self, values: &[f32], codes: &mut [u8], scales: &mut [u8]) {
        let CodeType { block, bits, .. } = *self.codes();
        let blocks = values.chunks(block).zip(codes.chunks_mut(block * bits / 8));
        for ((values, bytes), scale) in blocks.zip(scales) {
            let mut codes = [0; MAX_BLOCK];
            *scale = self.codes().pack(values, &mut codes[..values.len()]);
            if bits == 8 {
                bytes.copy_from_slice(&codes[..values.len()]);
            } else {
                let (low, high) = codes.split_at(bytes.len());
                let pairs = low.iter().zip(high);
                bytes.iter_mut().zip(pairs).for_each(|(to, (low, high))| *to = low | high << 4);
            }
        }
    }
}

/// Rounds a row of values, or one head of queries that meet such rows.
///
/// # Panics
/// Unless the rounding [fits](Rounding::fits) the row.
pub fn round(isa: Isa, rounding: Rounding, values: &mut [f32]) {
    assert!(rounding.fits(values.len()), "{rounding:?} of {} values", values.len());
    run_on(isa, Round { rounding, values });
}

struct Round<'a> {
    rounding: Rounding,
    values: &'a mut [f32],
}

impl Kernel for Round<'_> {
    #[inline(always)]
    fn run<L: Widen>(self) {
        let rounded = self.rounding.rounded(self.values.len());
        let (codes, values) = (self.rounding.codes(), &mut self.values[..rounded]);
        match self.rounding {
            Rounding::None => {}
            Rounding::Fp8 { .. } => each_block(codes, values, nearest_e4m3),
            Rounding::Fp4 => {
                hadamard(values);
                each_block(codes, values, nearest_e2m1);
            }
        }
    }
}

/// Rounds each block with `nearest`.
#[inline(always)]
fn each_block(codes: &CodeType, values: &mut [f32], nearest: impl Fn(f32, f32) -> f32) {
    for block in values.chunks_mut(codes.block) {
        let scale = codes.scale(block);
        if scale.is_nan() {
            block.fill(f32::NAN);
            continue;
        }
        let most = codes.most_under(scale);
        for value in block {
            *value = nearest(*value / scale, most) * scale;
        }
    }
}

/// The longest block.
const MAX_BLOCK: usize = 64;

/// Codes under a common scale.
struct CodeType {
    /// Values that share a scale.
    block: usize,
    /// Bits of a code.
    bits: usize,
    /// The largest code's value.
    most: f32,
    /// The largest value of a block is taken to be no smaller than this.
    least: f32,
    /// The scale under which the largest code is infinite in f32, and the largest that is not.
    overflow: (f32, f32),
    /// The code of a value under its scale.
    encode: fn(f32) -> u8,
}

/// `2^exponent`, of exponents of normal numbers.
const fn power(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

static E4M3: CodeType = CodeType {
    block: 64,
    bits: 8,
    most: 448.0,
    least: 1e-4,
    overflow: (power(120), 240.0),
    encode: |value| {
        let value = nearest_e4m3(value, 448.0);
        let magnitude = value.abs();
        let code = match magnitude < E4M3_NORMAL {
            true => (magnitude * 512.0) as u32,
            // The exponent has another bias.
            false => (magnitude.to_bits() >> 20) - (120 << 3),
        };
        code as u8 | (value.to_bits() >> 24) as u8 & 0x80
    },
};

static E2M1: CodeType = CodeType {
    block: 32,
    bits: 4,
    most: 6.0,
    least: 7.05e-38,
    overflow: (power(126), 3.0),
    encode: |value| {
        let value = nearest_e2m1(value, 6.0);
        let magnitude = value.abs();
        let code = match magnitude < 1.0 {
            true => (magnitude * 2.0) as u32,
            false => (magnitude.to_bits() >> 22) - (126 << 1),
        };
        code as u8 | (value.to_bits() >> 28) as u8 & 8
    },
};

impl CodeType {
    /// The scale of a block: a power of two, or NaN if a value is not finite.
    #[inline(always)]
    fn scale(&self, block: &[f32]) -> f32 {
        let largest = largest(block);
        if !largest.is_finite() {
            return f32::NAN;
        }
        let quotient = largest.max(self.least) / self.most;
        // No scale is below the normal numbers.
        let quotient = quotient.max(f32::MIN_POSITIVE);
        f32::from_bits((quotient.to_bits() + 0x7f_ffff) & 0xff80_0000)
    }

    #[inline(always)]
    fn most_under(&self, scale: f32) -> f32 {
        let (overflow, most) = self.overflow;
        if scale < overflow { self.most } else { most }
    }

    /// The codes of a block, and the byte of its scale.
    fn pack(&self, block: &[f32], codes: &mut [u8]) -> u8 {
        let scale = self.scale(block);
        if scale.is_nan() {
            codes.fill(0);
            return NAN_SCALE;
        }
        let most = self.most_under(scale);
        for (code, value) in codes.iter_mut().zip(block) {
            *code = (self.encode)((value / scale).clamp(-most, most));
        }
        (scale.to_bits() >> 23) as u8
    }
}

/// The byte of a scale that is NaN.
const NAN_SCALE: u8 = 255;

/// The scale of a byte: a power of two, or NaN.
#[inline(always)]
pub(crate) fn scale_of(byte: u8) -> f32 {
    if byte == NAN_SCALE { f32::NAN } else { f32::from_bits(u32::from(byte) << 23) }
}

/// The smallest normal value of E4M3.
const E4M3_NORMAL: f32 = power(-6);

/// The E4M3 value nearest to `value`, which is a number, no larger than `most`.
#[inline(always)]
fn nearest_e4m3(value: f32, most: f32) -> f32 {
    // Numbers of this size have steps of 2^-9, those of E4M3 below its normal numbers.
    const ROUND: f32 = 1.5 * power(14);
    let magnitude = value.abs().min(most);
    let small = (magnitude + ROUND) - ROUND;
    let bits = magnitude.to_bits();
    let large = f32::from_bits((bits + 0x7_ffff + (bits >> 20 & 1)) & 0xfff0_0000);
    signed(if magnitude < E4M3_NORMAL { small } else { large }, value)
}

/// The E2M1 value nearest to `value`, which is a number, no larger than `most`.
#[inline(always)]
fn nearest_e2m1(value: f32, most: f32) -> f32 {
    let magnitude = value.abs().min(most);
    // Steps from code to code, the first to the odd ones.
    let odd = step(magnitude > 0.25, 0.5)
        + step(magnitude > 1.25, 0.5)
        + step(magnitude > 2.5, 1.0)
        + step(magnitude > 5.0, 2.0);
    let even =
        step(magnitude >= 0.75, 0.5) + step(magnitude >= 1.75, 0.5) + step(magnitude >= 3.5, 1.0);
    signed(odd + even, value)
}

#[inline(always)]
fn step(reached: bool, by: f32) -> f32 {
    if reached { by } else { 0.0 }
}

/// The magnitude with the sign of `value`; zero is positive.
#[inline(always)]
fn signed(magnitude: f32, value: f32) -> f32 {
    magnitude.copysign(value) + 0.0
}

/// The Walsh-Hadamard transform of a power of two of values, in natural order, divided by the
/// square root of their number.
#[inline(always)]
fn hadamard(values: &mut [f32]) {
    let mut half = 1;
    while half < values.len() {
        for pair in values.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                (*low, *high) = (*low + *high, *low - *high);
            }
        }
        half *= 2;
    }
    let scale = (1.0 / (values.len() as f64).sqrt()) as f32;
    values.iter_mut().for_each(|value| *value *= scale);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn codes_are_the_nearest_and_of_two_as_near_the_even_one() {
        let e4m3 = |value, expected| assert_eq!(nearest_e4m3(value, 448.0), expected, "{value}");
        e4m3(0.3, 0.3125);
        e4m3(1.0625, 1.0);
        e4m3(1.1875, 1.25);
        e4m3(17.0, 16.0);
        e4m3(-447.9, -448.0);
        e4m3(power(-10), 0.0);
        e4m3(1.5 * power(-9), power(-8));
        e4m3(-0.99 * E4M3_NORMAL, -E4M3_NORMAL);
        let e2m1 = |value, expected| assert_eq!(nearest_e2m1(value, 6.0), expected, "{value}");
        let ties = [(0.25, 0.0), (0.75, 1.0), (1.25, 1.0), (1.75, 2.0), (2.5, 2.0), (3.5, 4.0)];
        for (value, expected) in ties.into_iter().chain([(5.0, 4.0), (5.01, 6.0), (0.26, 0.5)]) {
            e2m1(value, expected);
            e2m1(-value, -expected);
        }
        assert!(nearest_e4m3(-1e-9, 448.0).is_sign_positive());
    }

    #[test]
    fn codes_have_the_values_they_stand_for() {
        for code in (0..=0xffu8).filter(|code| code & 0x7f != 0x7f && *code != 0x80) {
            assert_eq!((E4M3.encode)(crate::quant::fp8::value(code)), code);
        }
        let values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        for (code, value) in (0..).zip(values) {
            assert_eq!((E2M1.encode)(value), code);
            assert!(code == 0 || (E2M1.encode)(-value) == code | 8);
        }
    }

    #[test]
    fn scales_are_the_smallest_powers_that_hold_the_largest_value() {
        assert_eq!(E4M3.scale(&[1.0, -3.0]), power(-7));
        assert_eq!(E4M3.scale(&[448.0]), 1.0);
        assert_eq!(E4M3.scale(&[448.0f32.next_up()]), 2.0);
        assert_eq!(E4M3.scale(&[0.0]), power(-22));
        assert_eq!(E2M1.scale(&[-6.0]), 1.0);
        assert_eq!(E2M1.scale(&[6.0f32.next_up()]), 2.0);
        assert_eq!(E2M1.scale(&[0.0]), power(-126));
        assert!(E4M3.scale(&[f32::NAN, 1.0]).is_nan() && E2M1.scale(&[f32::INFINITY]).is_nan());
    }

    /// The Hadamard matrix has `(-1)^(number of bits of i & j)` at `[i][j]`.
    #[test]
    fn the_transform_follows_its_definition_and_keeps_lengths() {
        for len in [1, 2, 16, 128] {
            let x: Vec<f32> = (0..len).map(|i| (i as f32 * 0.7).sin()).collect();
            let mut got = x.clone();
            hadamard(&mut got);
            for (i, got) in got.iter().enumerate() {
                let sign =
                    |j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                let sum: f64 = x.iter().enumerate().map(|(j, x)| sign(j) * f64::from(*x)).sum();
                assert!((f64::from(*got) - sum / (len as f64).sqrt()).abs() < 1e-5, "{len} {i}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_isa_rounds_alike_and_rounding_again_changes_nothing(
            bits in prop::collection::vec(any::<u32>(), 1..200),
            rotated in 0usize..70,
        ) {
            let row: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
            let rounding = Rounding::Fp8 { rotated: rotated.min(row.len()) };
            let mut want = row.clone();
            round(Isa::SCALAR, rounding, &mut want);
            let to_bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            for isa in Isa::available() {
                for mut again in [row.clone(), want.clone()] {
                    round(isa, rounding, &mut again);
                    prop_assert_eq!(to_bits(&again), to_bits(&want), "{:?}", isa);
                }
            }
            let kept = row.len() - rotated.min(row.len());
            prop_assert_eq!(to_bits(&want[kept..]), to_bits(&row[kept..]));
        }

        #[test]
        fn every_isa_transforms_and_rounds_alike(
            bits in prop::collection::vec(any::<u32>(), 128),
            exponent in 0u32..8,
        ) {
            // Any bits in some rows; in others, numbers.
            let any = bits[0] % 4 == 0;
            let value = |bits: u32| match any {
                true => f32::from_bits(bits),
                false => f32::from_bits(bits & 0x807f_ffff | (100 + bits % 40) << 23),
            };
            let row: Vec<f32> = bits[..1 << exponent].iter().map(|bits| value(*bits)).collect();
            let mut want = row.clone();
            round(Isa::SCALAR, Rounding::Fp4, &mut want);
            for isa in Isa::available() {
                let mut got = row.clone();
                round(isa, Rounding::Fp4, &mut got);
                let same = got.iter().zip(&want).all(|(a, b)| a.to_bits() == b.to_bits());
                prop_assert!(same, "{:?}: {:?} is not {:?}", isa, got, want);
            }
        }
    }
}
