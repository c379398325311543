//! The rotation of heads by the angles of their rows.

use super::machine::Reference;
use crate::handles::{HeadColumns, Pairs, Rope};

impl Reference {
    /// Rotates each head of each row by its angles, times `sign`.
    pub(super) fn turn_heads(&mut self, x: HeadColumns, rope: Rope, rows: usize, sign: f32) {
        self.each_row(x.buffer, rows, |this, row, values| {
            let rope = &this.ropes[rope.0];
            let count = rope.frequencies.len();
            let angles = &rope.angles[row * count..][..count];
            for head in values[x.first..].chunks_mut(x.stride) {
                rotate(head, rope.pairs, angles, sign);
            }
        });
    }
}

/// Rotates pairs of values by angles times `sign`.
pub(super) fn rotate(head: &mut [f32], pairs: Pairs, angles: &[(f32, f32)], sign: f32) {
    for (pair, (cos, sin)) in angles.iter().enumerate() {
        let (first, second) = match pairs {
            Pairs::Halves => (pair, pair + angles.len()),
            Pairs::Interleaved => (2 * pair, 2 * pair + 1),
        };
        let (a, b, sin) = (head[first], head[second], sign * sin);
        (head[first], head[second]) = (a * cos - b * sin, b * cos + a * sin);
    }
}
