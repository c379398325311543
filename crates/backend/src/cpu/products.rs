//! Products with weight matrices: inputs are rounded once for all products that share them, then
//! outputs are spread over the threads.

use super::packing::PackJob;
use super::weights::WeightMatrix;
use super::{Cpu, SERIAL_VALUES};
use crate::{Buffer, Matrix};
use base::{AlignedVec, MAX_MATRICES, Tile};
use kernels::layout::{Activations, GROUP, Inputs, Weights};
use std::cell::RefCell;
use std::ops::Range;

/// Rows that were gathered or rounded for the current products.
#[derive(Default)]
pub(super) struct Rounded {
    /// Words of each kind of activations.
    words: [AlignedVec<u32>; Activations::ALL.len()],
    /// Rows that a thread rounds at a time; kept, so that the next call allocates nothing.
    runs: Vec<Range<usize>>,
}

impl Rounded {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        4 * self.words.iter().map(|words| words.len()).sum::<usize>()
    }

    /// The first `rows` rows of `cols` values, which were rounded to `activations`.
    pub fn inputs(&self, activations: Activations, rows: usize, cols: usize) -> Inputs<'_> {
        let words = &self.words[activations as usize][..activations.words(rows, cols)];
        Inputs { activations, rows, cols, words }
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
}

impl Cpu {
    /// Begins an operation with `matrix`, after which it is named, without the number of a layer.
    pub(super) fn begin_products(&self, operation: &str, matrix: Matrix) {
        if self.pool.is_profiled() {
            let parts = self.matrices.get(matrix.0).name.split('.');
            let named = parts.filter(|part| part.parse::<usize>().is_err());
            self.pool.begin(&named.fold(operation.to_owned(), |name, part| name + " " + part));
        }
    }

    /// `out = x * matrix^T` for each matrix and output.
    pub(super) fn products(&mut self, x: Buffer, outputs: &[(Matrix, Buffer)], rows: usize) {
        let in_order = |(matrix, _): &(Matrix, Buffer)| self.matrices.get(matrix.0).order.is_none();
        if outputs.iter().all(in_order) {
            for to in Activations::ALL.into_iter().filter(|to| *to != Activations::F32) {
                let mut matrices = outputs.iter().map(|(matrix, _)| self.matrices.get(matrix.0));
                if matrices.any(|weights| weights.layout.activations == to) {
                    self.round(x, rows, to);
                }
            }
            if let &[output] = outputs
                && self.is_narrow(output.0, rows)
            {
                return self.spread_rows(x, output, rows);
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

    /// The product with a matrix, whose columns may be permuted.
    fn product_in_order(&mut self, x: Buffer, output: (Matrix, Buffer), rows: usize) {
        let weights = self.matrices.get(output.0.0);
        let (to, cols) = (weights.layout.activations, weights.cols);
        let mut rounded = std::mem::take(&mut self.rounded);
        self.pool.begin("round_inputs");
        self.gather(&mut rounded, to, cols, std::slice::from_ref(&(0..rows)), |row, values| {
            self.matrices.get(output.0.0).take_inputs(self.row(x, row), values);
        });
        self.rounded = rounded;
        self.spread(x, &[output], rows, true);
    }

    /// Computes all products, whose tiles the threads share. Where `gathered`, the inputs in f32
    /// are the gathered ones, else `x`; other inputs are rounded before.
    fn spread(&mut self, x: Buffer, outputs: &[(Matrix, Buffer)], rows: usize, gathered: bool) {
        self.begin_products("linear", outputs[0].0);
        let mut data: [AlignedVec<f32>; MAX_MATRICES] = Default::default();
        for (data, (_, out)) in data.iter_mut().zip(outputs) {
            *data = self.take(*out);
        }
        let this = &*self;
        let inputs = |weights: &WeightMatrix| match weights.layout.activations {
            Activations::F32 if !gathered => Inputs::f32(this.read_rows(x, 0..rows), this.width(x)),
            to => this.rounded.inputs(to, rows, this.width(x)),
        };
        let mut all = data.iter_mut();
        let mut parts: [(&mut [f32], usize, usize); MAX_MATRICES] =
            std::array::from_fn(|at| match (outputs.get(at), all.next()) {
                (Some((matrix, out)), Some(data)) => {
                    let WeightMatrix { rows: width, cols, .. } = *this.matrices.get(matrix.0);
                    let fits = this.width(x) == cols && this.width(*out) == width;
                    assert!(fits, "buffers fit the matrix");
                    (&mut data[..rows * width], width, this.columns_per_tile(width, cols))
                }
                _ => (&mut [][..], 1, 1),
            });
        this.pool.for_each_tile_of(&mut parts[..outputs.len()], |at, mut tile| {
            let weights = this.matrices.get(outputs[at].0.0);
            this.product(inputs(weights), outputs[at].0, &mut tile);
        });
        for (data, (_, out)) in data.into_iter().zip(outputs) {
            self.put(*out, data);
        }
    }

    /// Whether a product of many rows has fewer pieces of columns than there are threads, as a
    /// router's has.
    fn is_narrow(&self, matrix: Matrix, rows: usize) -> bool {
        let weights = self.matrices.get(matrix.0);
        let pieces = weights.rows.div_ceil(self.columns_per_tile(weights.rows, weights.cols));
        let plain = weights.layout.activations == Activations::F32;
        plain && pieces < self.pool.threads() && rows > NARROW_ROWS
    }

    /// Computes the product of rows that are not rounded, of which each thread takes some.
    fn spread_rows(&mut self, x: Buffer, (matrix, out): (Matrix, Buffer), rows: usize) {
        self.begin_products("linear", matrix);
        let mut data = self.take(out);
        let weights = self.matrices.get(matrix.0);
        let (width, inputs) = (weights.rows, Inputs::f32(self.read_rows(x, 0..rows), weights.cols));
        let fits = self.width(x) == weights.cols && self.width(out) == width;
        assert!(fits, "buffers fit the matrix");
        let tile = (NARROW_ROWS, self.columns_per_tile(width, weights.cols));
        self.pool.for_each_tile(&mut data[..rows * width], width, tile, |tile| {
            let rows = tile.rows();
            let mut tile = tile.from(rows.start, 0);
            self.product(inputs.slice(rows), matrix, &mut tile);
        });
        self.put(out, data);
    }

    /// Rounds the first `rows` rows of `x`.
    fn round(&mut self, x: Buffer, rows: usize, to: Activations) {
        self.pool.begin("round_inputs");
        let (isa, width) = (self.isa, self.width(x));
        let mut all = std::mem::take(&mut self.rounded.words[to as usize]);
        if all.len() < to.words(rows, width) {
            let most = self.buffers[x.0].data.len() / width;
            all = AlignedVec::zeroed(to.words(most, width));
        }
        let mut runs = std::mem::take(&mut self.rounded.runs);
        let (used, values) = (&mut all[..to.words(rows, width)], self.read_rows(x, 0..rows));
        if values.len() < SERIAL_VALUES {
            to.round(isa, values, width, used);
        } else {
            runs.clear();
            runs.extend(to.runs(isa, rows, ROUNDED_ROWS));
            let words = to.words(1, width);
            self.pool.for_each_cut(used, words, (&runs, words), |_, mut tile| {
                to.round(isa, self.read_rows(x, tile.rows()), width, tile.whole());
            });
        }
        self.rounded.runs = runs;
        self.rounded.words[to as usize] = all;
    }

    /// Rounds rows of `cols` values that `fill` writes, one by its number at a time, to what a
    /// product takes. The inputs of each of `cuts` belong to a separate product.
    pub(super) fn gather(
        &self,
        rounded: &mut Rounded,
        to: Activations,
        cols: usize,
        cuts: &[Range<usize>],
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        let (isa, rows) = (self.isa, cuts.last().map_or(0, |cut| cut.end));
        let Rounded { words, runs } = rounded;
        runs.clear();
        for cut in cuts {
            let own = to.runs(isa, cut.len(), ROUNDED_ROWS);
            runs.extend(own.map(|run| cut.start + run.start..cut.start + run.end));
        }
        let width = to.words(1, cols);
        let words = grown(&mut words[to as usize], rows * width);
        self.pool.for_each_cut(words, width, (runs, width), |_, mut tile| {
            if to == Activations::F32 {
                for row in tile.rows() {
                    fill(row, bytemuck::cast_slice_mut(tile.row_mut(row)));
                }
                return;
            }
            scratch(tile.rows().len() * cols, |values| {
                for (row, values) in tile.rows().zip(values.chunks_exact_mut(cols)) {
                    fill(row, values);
                }
                to.round(isa, values, cols, tile.whole());
            });
        });
    }

    /// Computes a tile of `inputs * matrix^T`: all rows of the inputs, some outputs.
    pub(super) fn product(&self, inputs: Inputs<'_>, matrix: Matrix, tile: &mut Tile<'_, f32>) {
        let weights = self.matrices.get(matrix.0);
        if let Some(job) = self.matrices.unpacked(matrix.0) {
            return self.product_on_the_fly(inputs, weights, job, tile);
        }
        let WeightMatrix { ty, rows, cols, layout, .. } = *weights;
        let bytes = &self.matrices.read(weights);
        layout.product(self.isa, inputs, Weights { ty, rows, cols, bytes }, tile);
    }

    /// The same with weights that are packed here, as many at a time as the nearest caches hold.
    fn product_on_the_fly(
        &self,
        inputs: Inputs<'_>,
        weights: &WeightMatrix,
        job: &PackJob,
        tile: &mut Tile<'_, f32>,
    ) {
        let WeightMatrix { ty, cols, layout, .. } = *weights;
        let all = tile.cols();
        let each = (ON_THE_FLY / job.group).max(1);
        for start in all.clone().step_by(each * GROUP) {
            let columns = start..(start + each * GROUP).min(all.end);
            let len = columns.len().div_ceil(GROUP) * job.group;
            packed_scratch(len, |bytes| {
                job.pack_on_the_fly(self.isa, start / GROUP, bytes);
                let weights = Weights { ty, rows: columns.len(), cols, bytes };
                let mut tile = tile.part(columns).from(0, start);
                layout.product(self.isa, inputs, weights, &mut tile);
            });
        }
    }

    /// Outputs claimed at a time: enough pieces to even out threads, few enough to be cheap, and
    /// whole groups of packed weights.
    fn columns_per_tile(&self, outputs: usize, inputs: usize) -> usize {
        let weights = |least: usize| (least / inputs.max(1)).next_power_of_two().clamp(GROUP, 64);
        // Threads without any are worse than small pieces.
        let even = (outputs / self.pool.threads()).next_multiple_of(GROUP);
        let least = weights(MIN_WEIGHTS).min(even.max(weights(MIN_SHARED)));
        (outputs / (self.pool.threads() * 8)).next_multiple_of(least).clamp(least, 512)
    }
}

/// Bytes of weights that are packed on the fly at a time.
const ON_THE_FLY: usize = 128 << 10;
/// Weights that make a piece worth claiming.
const MIN_WEIGHTS: usize = 1 << 16;
/// The same where there are fewer pieces than threads.
const MIN_SHARED: usize = 1 << 13;
/// Rows of a piece of a product with few outputs: whole register tiles.
const NARROW_ROWS: usize = 12;
/// Rows that a thread rounds or gathers at a time, about.
const ROUNDED_ROWS: usize = 8;

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

/// Lends `len` bytes in the same way. Products may use them inside of [`scratch`].
fn packed_scratch(len: usize, f: impl FnOnce(&mut [u8])) {
    thread_local! {
        static PACKED: RefCell<AlignedVec<u8>> = RefCell::default();
    }
    PACKED.with_borrow_mut(|bytes| f(grown(bytes, len)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backend, MatrixSpec, Mode};
    use kernels::Isa;
    use kernels::quant::{BF16, Q8_0};
    use std::sync::Arc;

    #[test]
    fn rows_give_the_same_bits_together_as_alone() {
        const COLS: usize = 4096;
        const OUTPUTS: usize = 19;
        const { assert!(COLS * 16 > SERIAL_VALUES) };
        let mut rng = base::Rng::new(3);
        for ty in [&BF16, &Q8_0] {
            let len = ty.bytes_for(OUTPUTS * COLS).unwrap();
            let bytes: Vec<u8> = (0..len).map(|_| rng.below(64) as u8).collect();
            let x: Vec<f32> = (0..41 * COLS).map(|_| rng.normal()).collect();
            for isa in Isa::available() {
                let mut cpu = Cpu::with_isa(2, Mode::Fast, isa).unwrap();
                let bytes = Arc::new(bytes.clone());
                let spec = MatrixSpec::new(String::new(), ty, [OUTPUTS, COLS], bytes);
                let matrix = cpu.matrix(spec).unwrap();
                while cpu.prepare_weights() {}
                let (input, out) =
                    (cpu.buffer(41, COLS).unwrap(), cpu.buffer(41, OUTPUTS).unwrap());
                let mut outputs = |x: &[f32]| {
                    let mut data = cpu.take(input);
                    data[..x.len()].copy_from_slice(x);
                    cpu.put(input, data);
                    let rows = x.len() / COLS;
                    cpu.linear(input, &[(matrix, out)], rows);
                    cpu.read(out, rows).to_vec()
                };
                let alone: Vec<f32> = x.chunks(COLS).flat_map(&mut outputs).collect();
                for rows in [2, 7, 8, 13, 16, 20, 28, 40, 41] {
                    let together = outputs(&x[..rows * COLS]);
                    assert!(together == alone[..rows * OUTPUTS], "{isa:?} {ty} {rows}");
                }
            }
        }
    }
}
