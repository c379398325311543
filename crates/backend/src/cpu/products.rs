//! Products with weight matrices: activations rounded to what the weights are multiplied with,
//! once for all products of one input, then outputs spread over the threads.

use super::weights::{Place, WeightMatrix};
use super::{Cpu, SERIAL_VALUES};
use crate::{Buffer, Matrix};
use base::{AlignedVec, MAX_MATRICES, Tile};
use kernels::Isa;
use kernels::layout::{bf16, fp8, int8, stored};
use std::cell::RefCell;
use std::ops::Range;

/// Rows that were gathered or rounded for the current products.
#[derive(Default)]
pub(super) struct Rounded {
    plain: AlignedVec<f32>,
    bf16: AlignedVec<u32>,
    int8: AlignedVec<u32>,
    /// Rows that a thread brings into form at a time; kept, so that the next call allocates nothing.
    pieces: Vec<Range<usize>>,
}

impl Rounded {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        4 * (self.plain.len() + self.bf16.len() + self.int8.len())
    }

    /// All rows of `cols` values, in each form that they were brought into.
    pub fn inputs(&self, cols: usize) -> Inputs<'_> {
        Inputs { plain: &self.plain, bf16: &self.bf16, int8: &self.int8, cols }
    }
}

/// Inputs of products, in each form that one of them takes: f32, and words of panels.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    plain: &'a [f32],
    bf16: &'a [u32],
    int8: &'a [u32],
    cols: usize,
}

impl<'a> Inputs<'a> {
    /// Some of the rows, from the start of a panel on.
    pub fn rows(self, rows: Range<usize>) -> Self {
        let cols = self.cols;
        let plain = self.plain.get(rows.start * cols..rows.end * cols).unwrap_or_default();
        // Of forms that are not in use there may be what is left of other products.
        let words = |of: &'a [u32], to: Rounding| match to {
            Rounding::Int8 if !cols.is_multiple_of(kernels::quant::BLOCK) => &[],
            _ => of.get(to.words(rows.start, cols)..to.words(rows.end, cols)).unwrap_or_default(),
        };
        let (bf16, int8) = (words(self.bf16, Rounding::Bf16), words(self.int8, Rounding::Int8));
        Self { plain, bf16, int8, cols }
    }
}

/// What activations are rounded to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
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
            Self::Bf16 => bf16::panel_rows(isa),
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

impl WeightMatrix {
    /// Copies a row of inputs in the order of the columns.
    pub fn take_inputs(&self, x: &[f32], values: &mut [f32]) {
        match &self.order {
            Some(order) => {
                values.iter_mut().zip(&**order).for_each(|(to, from)| *to = x[*from as usize]);
            }
            None => values.copy_from_slice(x),
        }
    }

    /// What they are multiplied with, if not f32.
    pub fn rounding(&self) -> Option<Rounding> {
        match self.place {
            Place::Stored(_) | Place::OnDisk(_) => None,
            Place::Bf16(_) | Place::Fp8(..) => Some(Rounding::Bf16),
            Place::Int8(..) => Some(Rounding::Int8),
        }
    }
}

impl Cpu {
    /// `out = x * matrix^T` for each matrix and output.
    pub(super) fn products(&mut self, x: Buffer, outputs: &[(Matrix, Buffer)], rows: usize) {
        let in_order = |(matrix, _): &(Matrix, Buffer)| self.matrices.get(matrix.0).order.is_none();
        if outputs.iter().all(in_order) {
            for to in [Rounding::Bf16, Rounding::Int8] {
                let mut matrices = outputs.iter().map(|(matrix, _)| self.matrices.get(matrix.0));
                if matrices.any(|weights| weights.rounding() == Some(to)) {
                    self.round(x, rows, to);
                }
            }
            for outputs in outputs.chunks(MAX_MATRICES) {
                self.spread(x, outputs, rows, false);
            }
        } else {
            for output in outputs {
                self.product_in_order(x, *output, rows);
            }
        }
    }

    /// The product with a matrix whose columns may have an order of their own.
    fn product_in_order(&mut self, x: Buffer, output: (Matrix, Buffer), rows: usize) {
        let weights = self.matrices.get(output.0.0);
        let (to, cols) = (weights.rounding(), weights.cols);
        let mut rounded = std::mem::take(&mut self.rounded);
        self.gather(&mut rounded, to, cols, std::slice::from_ref(&(0..rows)), |row, values| {
            self.matrices.get(output.0.0).take_inputs(self.row(x, row), values);
        });
        self.rounded = rounded;
        self.spread(x, &[output], rows, true);
    }

    /// Computes all products, whose tiles the threads share. Where `gathered`, the inputs in f32 are
    /// those that were gathered, else `x`; rounded they are already.
    fn spread(&mut self, x: Buffer, outputs: &[(Matrix, Buffer)], rows: usize, gathered: bool) {
        let mut data: [AlignedVec<f32>; MAX_MATRICES] = Default::default();
        for (data, (_, out)) in data.iter_mut().zip(outputs) {
            *data = self.take(*out);
        }
        let this = &*self;
        let mut inputs = this.rounded.inputs(this.width(x));
        if !gathered {
            inputs.plain = &this.buffers[x.0].data;
        }
        let inputs = inputs.rows(0..rows);
        let mut all = data.iter_mut();
        let mut parts: [(&mut [f32], usize, usize); MAX_MATRICES] =
            std::array::from_fn(|at| match (outputs.get(at), all.next()) {
                (Some((matrix, out)), Some(data)) => {
                    let WeightMatrix { rows: width, cols, .. } = *this.matrices.get(matrix.0);
                    let fits = this.width(x) == cols && this.width(*out) == width;
                    assert!(fits, "buffers fit the matrix");
                    (&mut data[..rows * width], width, this.columns_per_tile(width))
                }
                _ => (&mut [][..], 1, 1),
            });
        this.pool.for_each_tile_of(&mut parts[..outputs.len()], |at, mut tile| {
            this.product(inputs, rows, outputs[at].0, &mut tile);
        });
        for (data, (_, out)) in data.into_iter().zip(outputs) {
            self.put(*out, data);
        }
    }

    /// Rounds the first `rows` rows of `x`.
    fn round(&mut self, x: Buffer, rows: usize, to: Rounding) {
        let (isa, width) = (self.isa, self.width(x));
        let mut all = std::mem::take(self.rounded.words_mut(to));
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
        *self.rounded.words_mut(to) = all;
    }

    /// Brings rows of `cols` values that `fill` writes, one by its number at a time, into the form
    /// that a product takes. Those of each of `cuts` are the inputs of products of their own.
    pub(super) fn gather(
        &self,
        rounded: &mut Rounded,
        to: Option<Rounding>,
        cols: usize,
        cuts: &[Range<usize>],
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        let (isa, rows) = (self.isa, cuts.last().map_or(0, |cut| cut.end));
        let panel = to.map_or(PLAIN_ROWS, |to| to.panel(isa));
        let mut pieces = std::mem::take(&mut rounded.pieces);
        pieces.clear();
        for cut in cuts {
            // Whole panels, then what is left.
            let starts = cut.clone().step_by(panel);
            pieces.extend(starts.map(|start| start..(start + panel).min(cut.end)));
        }
        if let Some(to) = to {
            let width = to.words(1, cols);
            let words = grown(rounded.words_mut(to), rows * width);
            self.pool.for_each_cut(words, width, (&pieces, width), |_, mut tile| {
                scratch(tile.rows().len() * cols, |values| {
                    for (row, values) in tile.rows().zip(values.chunks_exact_mut(cols)) {
                        fill(row, values);
                    }
                    to.round(isa, values, cols, tile.whole());
                });
            });
        } else {
            let all = grown(&mut rounded.plain, rows * cols);
            self.pool.for_each_cut(all, cols, (&pieces, cols), |_, mut tile| {
                for row in tile.rows() {
                    fill(row, tile.row_mut(row));
                }
            });
        }
        rounded.pieces = pieces;
    }

    /// A tile of `inputs * matrix^T`, of all rows of the inputs, which were brought before into the
    /// form that the product takes.
    pub(super) fn product(
        &self,
        inputs: Inputs<'_>,
        rows: usize,
        matrix: Matrix,
        tile: &mut Tile<'_, f32>,
    ) {
        let weights = self.matrices.get(matrix.0);
        let WeightMatrix { ty, rows: outputs, cols, .. } = *weights;
        match &weights.place {
            Place::Stored(bytes) | Place::OnDisk(bytes) => {
                // In memory, so that this lends it.
                let bytes = &bytes.read(0..bytes.len());
                let weights = stored::Weights { ty, rows: outputs, cols, bytes };
                stored::matmul(self.isa, inputs.plain, weights, tile);
            }
            Place::Bf16(place) => {
                let input = bf16::Activations { words: inputs.bf16, rows, cols };
                let bytes = self.matrices.bytes_at(place);
                bf16::matmul(self.isa, input, bf16::Packed { rows: outputs, cols, bytes }, tile);
            }
            Place::Fp8(run, place) => {
                let input = bf16::Activations { words: inputs.bf16, rows, cols };
                let bytes = self.matrices.bytes_at(place);
                let weights = fp8::Packed { run: *run, rows: outputs, cols, bytes };
                fp8::matmul(self.isa, input, weights, tile);
            }
            Place::Int8(form, place) => {
                let input = int8::Activations { words: inputs.int8, rows, cols };
                let bytes = self.matrices.bytes_at(place);
                let weights = int8::Packed { layout: *form, rows: outputs, cols, bytes };
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

impl Rounded {
    fn words_mut(&mut self, to: Rounding) -> &mut AlignedVec<u32> {
        match to {
            Rounding::Bf16 => &mut self.bf16,
            Rounding::Int8 => &mut self.int8,
        }
    }
}

/// Rows that a thread gathers at a time where they are not rounded.
const PLAIN_ROWS: usize = 8;

/// The first `len` values of `all`, which grows if there are too few.
pub(super) fn grown<T: bytemuck::Pod>(all: &mut AlignedVec<T>, len: usize) -> &mut [T] {
    if all.len() < len {
        *all = AlignedVec::zeroed(len.next_power_of_two());
    }
    &mut all[..len]
}

/// Lends `len` values that the thread keeps for its next call.
pub(super) fn scratch(len: usize, f: impl FnOnce(&mut [f32])) {
    thread_local! {
        static SCRATCH: RefCell<AlignedVec<f32>> = RefCell::default();
    }
    SCRATCH.with_borrow_mut(|values| f(grown(values, len)));
}
