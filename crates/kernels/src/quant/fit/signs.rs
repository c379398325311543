//! Blocks that store signs separately from magnitudes, in runs of eight values. Where only seven of
//! eight signs are stored, the number of negative values must be even: a value of little weight
//! then gets the wrong sign, and the smallest magnitude is its best approximation.

use crate::quant::fit::book::Leveled;
use crate::quant::fit::weighted::{WeightedBlock, WeightedGroup};

const LEN: usize = 256;
const EIGHT: usize = 8;

/// Number of signs stored of eight.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Signs {
    Eight,
    Seven,
}

/// Magnitudes with their stored signs.
pub(in super::super) struct Unsigned {
    pub block: WeightedBlock<LEN>,
    /// One bit per value of eight, set if negative.
    signs: [u8; LEN / EIGHT],
}

impl Unsigned {
    #[inline(always)]
    pub fn of(block: &WeightedBlock<LEN>, stored: Signs) -> Self {
        let mut parts = Self {
            block: WeightedBlock { values: block.values.map(f32::abs), weights: block.weights },
            signs: [0; LEN / EIGHT],
        };
        for (at, (signs, eight)) in parts.signs.iter_mut().zip(block.groups::<EIGHT>()).enumerate()
        {
            *signs = negative(eight.values);
            if stored == Signs::Seven && signs.count_ones() % 2 == 1 {
                // The error of a wrong sign grows with this product.
                let cost = |i: usize| eight.weights[i] * eight.values[i].abs();
                let least = (1..EIGHT).fold(0, |m, i| if cost(i) < cost(m) { i } else { m });
                *signs ^= 1 << least;
                parts.block.values[at * EIGHT + least] *= -1.0;
            }
        }
        parts
    }

    /// The entries and signs with the least error for run `at` of eight values.
    #[inline(always)]
    pub fn store<const P: usize, const L: usize>(
        &self,
        at: usize,
        book: Leveled<'_, P, L>,
        scale: f32,
    ) -> ([u16; 2], u8) {
        let eight = self.block.groups::<EIGHT>().nth(at).expect("a block has 32 eights");
        let (mut entries, mut least, mut signs) = ([0; 2], f32::INFINITY, 0);
        let wrong = negative(eight.values);
        // Under a known scale, the wrong sign may be best at any of the eight values.
        let tries = if wrong == 0 { 1 } else { EIGHT };
        for i in 0..tries {
            let flipped = if wrong == 0 { 0 } else { 1 << i };
            let values = std::array::from_fn(|j| signed(eight.values[j].abs(), flipped >> j & 1));
            let tried = WeightedGroup { values: &values, ..eight };
            let (found, loss) = book.nearest_eight(tried, scale);
            if loss < least {
                (entries, least) = (found, loss);
                signs = self.signs[at] ^ wrong ^ flipped;
            }
        }
        (entries, signs)
    }
}

/// Negated where `bit` is set.
#[inline(always)]
fn signed(value: f32, bit: u8) -> f32 {
    if bit == 1 { -value } else { value }
}

/// One bit per value, set if negative.
#[inline(always)]
fn negative(values: &[f32; EIGHT]) -> u8 {
    values.iter().enumerate().fold(0, |bits, (i, &v)| bits | u8::from(v < 0.0) << i)
}

#[cfg(test)]
mod tests {
    use super::super::Book;
    use super::*;
    use base::Rng;

    #[test]
    fn the_value_that_loses_least_gets_the_wrong_sign() {
        let mut rng = Rng::new(22);
        // All codes.
        let grid: Vec<u16> = (0..4096).collect();
        let (book, levels) =
            (Book::<4, 8>::new(&grid, 3), [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0]);
        let block = WeightedBlock {
            values: std::array::from_fn(|_| rng.normal() * 5.0),
            weights: std::array::from_fn(|_| rng.normal().exp()),
        };
        let book = Leveled { book: &book, levels: &levels };
        let parts = Unsigned::of(&block, Signs::Seven);
        for (at, eight) in block.groups::<8>().enumerate() {
            let (entries, signs) = parts.store(at, book, 1.0);
            assert_eq!(signs.count_ones() % 2, 0);
            let loss = |i: usize, flip: bool| {
                let level = levels[usize::from(entries[i / 4] >> (3 * (i % 4)) & 7)];
                let negative = (signs >> i & 1 == 1) != flip;
                let miss = eight.values[i] - if negative { -level } else { level };
                eight.weights[i] * miss * miss
            };
            let wrong: Vec<usize> =
                (0..8).filter(|&i| (signs >> i & 1 == 1) != (eight.values[i] < 0.0)).collect();
            assert!(wrong.len() < 2, "{wrong:?}");
            // A wrong sign adds the least error that a wrong sign at any value would.
            let nearest = |v: f32| (((v.abs() - 1.0) / 2.0).round() * 2.0 + 1.0).clamp(1.0, 15.0);
            let added = |i: usize| {
                let (v, w) = (eight.values[i].abs(), eight.weights[i]);
                w * ((v + 1.0).powi(2) - (v - nearest(v)).powi(2))
            };
            let least = (0..8).map(added).fold(f32::INFINITY, f32::min);
            for i in wrong {
                assert!(loss(i, false) > loss(i, true));
                assert!((added(i) - least).abs() <= 1e-4 * least, "{} {least}", added(i));
            }
        }
    }
}
