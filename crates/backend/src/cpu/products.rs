//! Products with weight matrices: activations rounded to what the weights are multiplied with,
//! once for all products of one input, then outputs spread over the threads.

use super::weights::{Place, Weights};
use super::{Cpu, SERIAL_VALUES};
use crate::{Buffer, Matrix};
use base::AlignedVec;
use kernels::{bf16, int8, matmul};

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

/// What a product takes its activations as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InputType {
    F32,
    Bf16,
    Int8,
}

impl Weights {
    fn input(&self) -> InputType {
        match self.place {
            Place::Stored(_) => InputType::F32,
            Place::Bf16(_) => InputType::Bf16,
            Place::Int8(..) => InputType::Int8,
        }
    }
}

impl Cpu {
    /// `out = x * matrix^T` for each matrix and output.
    pub(super) fn products(&mut self, x: Buffer, outputs: &[(Matrix, Buffer)], rows: usize) {
        for input in [InputType::Bf16, InputType::Int8] {
            if outputs.iter().any(|(matrix, _)| self.matrices.get(matrix.0).input() == input) {
                self.round(x, rows, input);
            }
        }
        for (matrix, out) in outputs {
            self.product(x, *matrix, *out, rows);
        }
    }

    /// Rounds the first `rows` rows of `x` to `input`.
    fn round(&mut self, x: Buffer, rows: usize, input: InputType) {
        let width = self.width(x);
        let (isa, most) = (self.isa, self.buffers[x.0].data.len() / width);
        let (words, panel, round): (fn(_, _) -> _, _, fn(_, &[f32], _, &mut [u32])) = match input {
            InputType::F32 => return,
            InputType::Bf16 => (bf16::words, bf16::PANEL, bf16::round),
            InputType::Int8 => (int8::words, int8::panel_rows(isa), int8::quantise),
        };
        let mut all = std::mem::take(self.rounded_mut(input));
        if all.len() < words(rows, width) {
            all = AlignedVec::zeroed(words(most.max(rows), width));
        }
        let (used, values) = (&mut all[..words(rows, width)], self.read_rows(x, 0..rows));
        if values.len() < SERIAL_VALUES {
            round(isa, values, width, used);
        } else {
            let row_words = words(1, width);
            self.pool.for_each_tile(used, row_words, (panel, row_words), |mut tile| {
                round(isa, self.read_rows(x, tile.rows()), width, tile.whole());
            });
        }
        *self.rounded_mut(input) = all;
    }

    fn rounded_mut(&mut self, input: InputType) -> &mut AlignedVec<u32> {
        match input {
            InputType::Bf16 => &mut self.rounded.bf16,
            _ => &mut self.rounded.int8,
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
