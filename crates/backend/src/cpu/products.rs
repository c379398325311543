//! Products with weight matrices: activations rounded to what the weights are multiplied with,
//! once for all products of one input, then outputs spread over the threads.

use super::weights::{Place, Weights};
use super::{Cpu, SERIAL_VALUES};
use crate::{Buffer, Matrix};
use base::{AlignedVec, MOST_MATRICES, Tile};
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
        for outputs in outputs.chunks(MOST_MATRICES) {
            self.spread(x, outputs, rows);
        }
    }

    /// Computes all products, whose tiles the threads share, `x` being rounded already.
    fn spread(&mut self, x: Buffer, outputs: &[(Matrix, Buffer)], rows: usize) {
        let mut data: [AlignedVec<f32>; MOST_MATRICES] = Default::default();
        for (data, (_, out)) in data.iter_mut().zip(outputs) {
            *data = self.take(*out);
        }
        let this = &*self;
        let mut all = data.iter_mut();
        let mut parts: [(&mut [f32], usize, usize); MOST_MATRICES] =
            std::array::from_fn(|at| match (outputs.get(at), all.next()) {
                (Some((matrix, out)), Some(data)) => {
                    let Weights { rows: width, cols, .. } = *this.matrices.get(matrix.0);
                    let fits = this.width(x) == cols && this.width(*out) == width;
                    assert!(fits, "buffers fit the matrix");
                    (&mut data[..rows * width], width, this.columns_per_tile(width))
                }
                _ => (&mut [][..], 1, 1),
            });
        this.pool.for_each_tile_of(&mut parts[..outputs.len()], |at, mut tile| {
            this.product(x, outputs[at].0, rows, &mut tile);
        });
        for (data, (_, out)) in data.into_iter().zip(outputs) {
            self.put(*out, data);
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

    /// A tile of `x * matrix^T`; `x` was rounded before to what the product takes.
    fn product(&self, x: Buffer, matrix: Matrix, rows: usize, tile: &mut Tile<'_, f32>) {
        let weights = self.matrices.get(matrix.0);
        let Weights { ty, rows: outputs, cols, .. } = *weights;
        match &weights.place {
            Place::Stored(bytes) => {
                let bytes = &bytes.read(0..bytes.len());
                let weights = matmul::Weights { ty, rows: outputs, cols, bytes };
                matmul::matmul(self.isa, self.read_rows(x, 0..rows), weights, tile);
            }
            Place::Bf16(place) => {
                let words = &self.rounded.bf16[..bf16::words(rows, cols)];
                let input = bf16::Activations { words, rows, cols };
                let bytes = self.matrices.bytes_at(place);
                bf16::matmul(self.isa, input, bf16::Packed { rows: outputs, cols, bytes }, tile);
            }
            Place::Int8(form, place) => {
                let words = &self.rounded.int8[..int8::words(rows, cols)];
                let input = int8::Activations { words, rows, cols };
                let bytes = self.matrices.bytes_at(place);
                let weights = int8::Packed { form: *form, rows: outputs, cols, bytes };
                int8::matmul(self.isa, input, weights, tile);
            }
        }
    }

    /// Outputs claimed at a time: enough pieces to even out threads, few enough to be cheap, and
    /// whole groups of packed weights.
    fn columns_per_tile(&self, outputs: usize) -> usize {
        (outputs / (self.pool.threads() * 8)).next_multiple_of(64).clamp(64, 512)
    }
}
