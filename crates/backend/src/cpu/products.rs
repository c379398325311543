//! Products with weight matrices: activations rounded to what the weights are multiplied with,
//! once for all products of one input, then outputs spread over the threads.

use super::weights::{Place, Weights};
use super::{Cpu, SERIAL_VALUES};
use crate::{Buffer, Matrix};
use base::AlignedVec;
use kernels::{Isa, bf16, int8, matmul};

/// Activations of the current products, as words of panels.
#[derive(Default)]
pub(super) struct Rounded {
    bf16: AlignedVec<u32>,
    int8: AlignedVec<u32>,
}

impl Rounded {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        4 * (self.bf16.len() + self.int8.len())
    }
}

/// What activations are rounded to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rounding {
    Bf16,
    Int8,
}

impl Rounding {
    fn words(self, rows: usize, cols: usize) -> usize {
        match self {
            Self::Bf16 => bf16::words(rows, cols),
            Self::Int8 => int8::words(rows, cols),
        }
    }

    /// Rows of whole panels.
    fn panel(self, isa: Isa) -> usize {
        match self {
            Self::Bf16 => bf16::PANEL,
            Self::Int8 => int8::panel_rows(isa),
        }
    }

    fn round(self, isa: Isa, x: &[f32], cols: usize, out: &mut [u32]) {
        match self {
            Self::Bf16 => bf16::round(isa, x, cols, out),
            Self::Int8 => int8::quantise(isa, x, cols, out),
        }
    }
}

impl Weights {
    /// What they are multiplied with, if not f32.
    fn rounding(&self) -> Option<Rounding> {
        match self.place {
            Place::Stored(_) => None,
            Place::Bf16(_) => Some(Rounding::Bf16),
            Place::Int8(..) => Some(Rounding::Int8),
        }
    }
}

impl Cpu {
    /// `out = x * matrix^T` for each matrix and output.
    pub(super) fn products(&mut self, x: Buffer, outputs: &[(Matrix, Buffer)], rows: usize) {
        for to in [Rounding::Bf16, Rounding::Int8] {
            let mut matrices = outputs.iter().map(|(matrix, _)| self.matrices.get(matrix.0));
            if matrices.any(|weights| weights.rounding() == Some(to)) {
                self.round(x, rows, to);
            }
        }
        for (matrix, out) in outputs {
            self.product(x, *matrix, *out, rows);
        }
    }

    /// Rounds the first `rows` rows of `x`.
    fn round(&mut self, x: Buffer, rows: usize, to: Rounding) {
        let (isa, width) = (self.isa, self.width(x));
        let mut all = std::mem::take(self.rounded_mut(to));
        if all.len() < to.words(rows, width) {
            let most = self.buffers[x.0].data.len() / width;
            all = AlignedVec::zeroed(to.words(most, width));
        }
        let (used, values) = (&mut all[..to.words(rows, width)], self.read_rows(x, 0..rows));
        if values.len() < SERIAL_VALUES {
            to.round(isa, values, width, used);
        } else {
            let tile = (to.panel(isa), to.words(1, width));
            self.pool.for_each_tile(used, tile.1, tile, |mut tile| {
                to.round(isa, self.read_rows(x, tile.rows()), width, tile.whole());
            });
        }
        *self.rounded_mut(to) = all;
    }

    fn rounded_mut(&mut self, to: Rounding) -> &mut AlignedVec<u32> {
        match to {
            Rounding::Bf16 => &mut self.rounded.bf16,
            Rounding::Int8 => &mut self.rounded.int8,
        }
    }

    /// `out = x * matrix^T`; `x` was rounded before to what the product takes.
    fn product(&mut self, x: Buffer, matrix: Matrix, out: Buffer, rows: usize) {
        let Weights { rows: outputs, cols, .. } = *self.matrices.get(matrix.0);
        assert!(self.width(x) == cols && self.width(out) == outputs, "buffers fit the matrix");
        let mut data = self.take(out);
        let this = &*self;
        let (isa, pool, weights) = (this.isa, &this.pool, this.matrices.get(matrix.0));
        let used = &mut data[..rows * outputs];
        let tile = (rows.max(1), this.columns_per_tile(outputs));
        match &weights.place {
            Place::Stored(bytes) => {
                let bytes = (**bytes).as_ref();
                let weights = matmul::Weights { ty: weights.ty, rows: outputs, cols, bytes };
                let x = this.read_rows(x, 0..rows);
                pool.for_each_tile(used, outputs, tile, |mut tile| {
                    matmul::matmul(isa, x, weights, &mut tile);
                });
            }
            Place::Bf16(place) => {
                let words = &this.rounded.bf16[..bf16::words(rows, cols)];
                let input = bf16::Activations { words, rows, cols };
                let bytes = this.matrices.bytes_at(place);
                let weights = bf16::Packed { rows: outputs, cols, bytes };
                pool.for_each_tile(used, outputs, tile, |mut tile| {
                    bf16::matmul(isa, input, weights, &mut tile);
                });
            }
            Place::Int8(form, place) => {
                let words = &this.rounded.int8[..int8::words(rows, cols)];
                let input = int8::Activations { words, rows, cols };
                let bytes = this.matrices.bytes_at(place);
                let weights = int8::Packed { form: *form, rows: outputs, cols, bytes };
                pool.for_each_tile(used, outputs, tile, |mut tile| {
                    int8::matmul(isa, input, weights, &mut tile);
                });
            }
        }
        self.put(out, data);
    }

    /// Outputs claimed at a time: enough pieces to even out threads, few enough to be cheap, and
    /// whole groups of packed weights.
    fn columns_per_tile(&self, outputs: usize) -> usize {
        (outputs / (self.pool.threads() * 8)).next_multiple_of(64).clamp(64, 512)
    }
}
