//! Rotary position embedding (Su et al., 2021): rotates pairs of values by an angle proportional to
//! the position.

use crate::lanes::{Lanes, isa_dispatch};
use base::math;

/// Which two values of a head form a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// `(i, i + dim/2)`.
    Halves,
    /// `(2i, 2i + 1)`.
    Interleaved,
}

/// The factor of cosines and sines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Magnitude {
    /// At the first positions.
    pub factor: f32,
    /// How it grows with positions.
    pub growth: Option<Growth>,
}

/// Growth of a factor with positions: `1 + beta * ln(1 + floor((position + offset) / every))`
/// (Llama 4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Slope.
    pub beta: f32,
    /// Positions to a step.
    pub every: u32,
    /// Added to positions.
    pub offset: u32,
}

impl From<f32> for Magnitude {
    fn from(factor: f32) -> Self {
        Self { factor, growth: None }
    }
}

impl Magnitude {
    /// The factor at a position.
    pub fn at(&self, position: u32) -> f32 {
        let Some(Growth { beta, every, offset }) = self.growth else { return self.factor };
        let steps = position.saturating_add(offset) / every.max(1);
        self.factor * (1.0 + beta * math::ln(f64::from(1.0 + steps as f32)) as f32)
    }
}

/// Writes `cos` and `sin` of `position * frequency`, times `magnitude`, for each frequency. Angles
/// are f32, as the reference implementation computes them; their functions are rounded once.
pub fn angles(
    position: u32,
    frequencies: &[f32],
    magnitude: f32,
    cos: &mut [f32],
    sin: &mut [f32],
) {
    assert!(frequencies.len() == cos.len() && cos.len() == sin.len(), "one angle a pair");
    for ((frequency, cos), sin) in frequencies.iter().zip(cos).zip(sin) {
        let (s, c) = math::sin_cos(f64::from(position as f32 * frequency));
        (*sin, *cos) = (s as f32 * magnitude, c as f32 * magnitude);
    }
}

isa_dispatch! {
    /// Rotates the first `2 * cos.len()` values of each head of `row`; heads are `head_dim` values
    /// apart, and their other values do not change. The last head may end after its rotated values.
    pub fn rotate(
        row: &mut [f32],
        head_dim: usize,
        pairs: Pairs,
        cos: &[f32],
        sin: &[f32],
    ) = rotate_body
}

#[inline(always)]
fn rotate_body<L: Lanes>(row: &mut [f32], head_dim: usize, pairs: Pairs, cos: &[f32], sin: &[f32]) {
    let rotated = 2 * cos.len();
    assert!(cos.len() == sin.len() && rotated <= head_dim, "at most the whole head is rotated");
    for head in row.chunks_mut(head_dim) {
        match pairs {
            Pairs::Halves => {
                let (first, second) = head[..rotated].split_at_mut(cos.len());
                for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                    (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                }
            }
            Pairs::Interleaved => {
                let (pairs, _) = head[..rotated].as_chunks_mut::<2>();
                for ((pair, cos), sin) in pairs.iter_mut().zip(cos).zip(sin) {
                    let [a, b] = *pair;
                    *pair = [a * cos - b * sin, b * cos + a * sin];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn rotation_keeps_lengths_and_follows_the_angle() {
        let (mut cos, mut sin) = ([0.0; 2], [0.0; 2]);
        angles(3, &[1.0, 0.1], 1.0, &mut cos, &mut sin);
        for isa in Isa::available() {
            for pairs in [Pairs::Halves, Pairs::Interleaved] {
                let mut row = [1.0, 0.0, 0.0, 0.0, 9.0, 9.0];
                rotate(isa, &mut row, 6, pairs, &cos, &sin);
                let second = if pairs == Pairs::Halves { 2 } else { 1 };
                assert_eq!((row[0], row[second]), (3.0f32.cos(), 3.0f32.sin()));
                assert_eq!(row[4..], [9.0, 9.0]);
            }
        }
    }

    #[test]
    fn halves_and_interleaved_are_one_rotation_of_permuted_values() {
        let (mut cos, mut sin) = ([0.0; 8], [0.0; 8]);
        let frequencies: [f32; 8] = std::array::from_fn(|i| 0.5f32.powi(i as i32));
        angles(77, &frequencies, 1.0, &mut cos, &mut sin);
        let values: [f32; 16] = std::array::from_fn(|i| (i as f32 * 0.7).sin());
        let mut halves = values;
        rotate(Isa::SCALAR, &mut halves, 16, Pairs::Halves, &cos, &sin);
        let mut mixed: [f32; 16] = std::array::from_fn(|i| values[i / 2 + i % 2 * 8]);
        rotate(Isa::SCALAR, &mut mixed, 16, Pairs::Interleaved, &cos, &sin);
        for i in 0..8 {
            assert_eq!((halves[i], halves[i + 8]), (mixed[2 * i], mixed[2 * i + 1]));
        }
    }
}
