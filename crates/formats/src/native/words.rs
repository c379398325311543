//! Small integers packed into 32-bit words, lowest bits first.

use std::ops::Range;

use base::Storage;

use super::order::BLOCK;

/// How the integers of a matrix are packed into words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Along {
    /// Consecutive rows.
    Rows,
    /// Consecutive columns.
    Columns,
    /// Eight columns in AutoAWQ's order: of outputs 0 to 7 first the even ones, then the odd.
    Interleaved,
}

/// Position of each of eight columns in a word of AutoAWQ.
const PLACES: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// Words that are checked at a time.
const PIECE: usize = 1 << 14;

/// A matrix of integers of `bits` bits.
pub(super) struct Words {
    pub bytes: Storage,
    pub bits: usize,
    pub along: Along,
    /// Words of a row of words.
    pub stride: usize,
    /// Added to each word, with carries from integer to integer.
    pub more: u32,
}

impl Words {
    /// The integer in row `row` and column `col`.
    pub fn at(&self, row: usize, col: usize) -> u8 {
        let (word, shift) = self.place(row, col);
        let bytes = self.bytes.read(4 * word..4 * word + 4);
        (word_at(&bytes, 0).wrapping_add(self.more) >> shift) as u8 & self.mask()
    }

    /// A word of ones: 1 for each integer.
    pub fn ones(bits: usize) -> u32 {
        u32::MAX / ((1 << bits) - 1)
    }

    /// Whether all integers are `value`, with no bits left over in any word. Integers of a missing
    /// file are taken to be: a rank that has the file finds out.
    pub fn are_all(&self, value: u32) -> bool {
        if !self.bytes.are_here() {
            return true;
        }
        let word = value * Self::ones(self.bits);
        let words = self.bytes.len() / 4;
        (0..words).step_by(PIECE).all(|start| {
            let bytes = self.bytes.read(4 * start..4 * words.min(start + PIECE));
            let mut read = bytes.as_chunks().0.iter();
            read.all(|bytes| u32::from_le_bytes(*bytes).wrapping_add(self.more) == word)
        })
    }

    /// The integers of a matrix `[inputs, outputs]` at `inputs` and `outputs`, as `[inputs,
    /// outputs]`.
    pub fn by_input(&self, inputs: &[usize; BLOCK], outputs: Range<usize>, out: &mut [u8]) {
        let mask = self.mask();
        for (input, out) in inputs.iter().zip(out.chunks_exact_mut(outputs.len())) {
            match self.along {
                Along::Rows => {
                    // All integers have the same shift, in consecutive words.
                    let (first, shift) = self.place(*input, outputs.start);
                    let bytes = self.bytes.read(4 * first..4 * (first + outputs.len()));
                    for (out, word) in out.iter_mut().zip(bytes.as_chunks().0) {
                        *out = (u32::from_le_bytes(*word) >> shift) as u8 & mask;
                    }
                }
                _ => {
                    let first = input * self.stride;
                    let bytes = self.bytes.read(4 * first..4 * (first + self.stride));
                    for (out, output) in out.iter_mut().zip(outputs.clone()) {
                        let (word, shift) = self.place(0, output);
                        *out = (word_at(&bytes, word) >> shift) as u8 & mask;
                    }
                }
            }
        }
    }

    /// The integers of a matrix `[outputs, inputs]` at `inputs` and `outputs`, as `[inputs,
    /// outputs]`.
    pub fn by_output(&self, inputs: &[usize; BLOCK], outputs: Range<usize>, out: &mut [u8]) {
        let (count, mask) = (outputs.len(), self.mask());
        let bytes = self.bytes.read(4 * outputs.start * self.stride..4 * outputs.end * self.stride);
        for (index, row) in bytes.chunks_exact(4 * self.stride).enumerate() {
            for (place, input) in inputs.iter().enumerate() {
                let (word, shift) = self.place(0, *input);
                out[place * count + index] = (word_at(row, word) >> shift) as u8 & mask;
            }
        }
    }

    /// The word of an integer, and its shift in the word.
    fn place(&self, row: usize, col: usize) -> (usize, usize) {
        let per = 32 / self.bits;
        match self.along {
            Along::Rows => (row / per * self.stride + col, row % per * self.bits),
            Along::Columns => (row * self.stride + col / per, col % per * self.bits),
            Along::Interleaved => (row * self.stride + col / per, PLACES[col % 8] * self.bits),
        }
    }

    fn mask(&self) -> u8 {
        (255u16 >> (8 - self.bits)) as u8
    }
}

fn word_at(bytes: &[u8], index: usize) -> u32 {
    bytes.as_chunks().0.get(index).map_or(0, |word| u32::from_le_bytes(*word))
}
