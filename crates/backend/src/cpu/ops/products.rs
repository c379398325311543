//! Products with weight matrices: inputs are rounded once for all products that share them, then
//! outputs are spread over the threads.

use super::inputs::CollectedSums;
use crate::cpu::core::{CpuCore, SERIAL_VALUES};
use crate::cpu::packing::PackJob;
use crate::cpu::scratch::{grown, scratch};
use crate::cpu::weights::{Matrices, WeightMatrix};
use crate::handles::{Buffer, Matrix};
use base::{AlignedVec, MAX_MATRICES, Tile};
use kernels::Isa;
use kernels::layout::{Activations, GROUP, Inputs, Weights};
use std::cell::RefCell;
use std::ops::Range;

/// Rows that were gathered or rounded for the current products.
#[derive(Default)]
pub(in crate::cpu) struct Rounded {
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

    /// Rounds the first `rows` rows of `x`.
    fn round(&mut self, core: &CpuCore, x: Buffer, rows: usize, to: Activations) {
        core.pool.begin("round_inputs");
        let (isa, width) = (core.isa, core.width(x));
        let Self { words: all, runs } = self;
        let all = &mut all[to as usize];
        if all.len() < to.words(rows, width) {
            let most = core.buffers[x.0].data.len() / width;
            *all = AlignedVec::zeroed(to.words(most, width));
        }
        let (used, values) = (&mut all[..to.words(rows, width)], core.read_rows(x, 0..rows));
        if values.len() < SERIAL_VALUES {
            to.round(isa, values, width, used);
        } else {
            runs.clear();
            runs.extend(to.runs(isa, rows, ROUNDED_ROWS));
            let words = to.words(1, width);
            core.pool.for_each_cut(used, words, (runs, words), |_, mut tile| {
                to.round(isa, core.read_rows(x, tile.rows()), width, tile.whole());
            });
        }
    }

    /// Rounds rows of `cols` values that `fill` writes, one by its number at a time, to what a
    /// product takes. The inputs of each of `cuts` belong to a separate product.
    pub fn gather(
        &mut self,
        core: &CpuCore,
        to: Activations,
        cols: usize,
        cuts: &[Range<usize>],
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        let (isa, rows) = (core.isa, cuts.last().map_or(0, |cut| cut.end));
        let Self { words, runs } = self;
        runs.clear();
        for cut in cuts {
            let own = to.runs(isa, cut.len(), ROUNDED_ROWS);
            runs.extend(own.map(|run| cut.start + run.start..cut.start + run.end));
        }
        let width = to.words(1, cols);
        let words = grown(&mut words[to as usize], rows * width);
        core.pool.for_each_cut(words, width, (runs, width), |_, mut tile| {
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

/// Weight matrices and their products.
#[derive(Default)]
pub(in crate::cpu) struct Products {
    pub matrices: Matrices,
    /// Activations of the current products, rounded.
    pub rounded: Rounded,
    /// Rows of each head among the gathered rows; kept for the next call.
    pub cuts: Vec<Range<usize>>,
    pub sums: CollectedSums,
}

impl Products {
    /// Brings streamed matrices into memory, and as [`Matrices::defer`].
    pub fn defer(&mut self, core: &CpuCore, used: impl Iterator<Item = Matrix> + Clone) {
        self.matrices.need(used.clone().map(|matrix| matrix.0));
        self.matrices.defer(used.map(|matrix| matrix.0), core.isa, &core.pool);
    }

    /// Limits the threads of the next products of `rows` rows to what each of the matrices allows.
    pub fn limit(&self, core: &CpuCore, matrices: impl IntoIterator<Item = Matrix>, rows: usize) {
        let limits = matrices.into_iter();
        core.pool.limit(limits.filter_map(|m| self.matrices.get(m.0).threads.of(rows)).min());
    }

    /// `out = x * matrix^T` for each matrix and output.
    pub fn linear(
        &mut self,
        core: &mut CpuCore,
        x: Buffer,
        outputs: &[(Matrix, Buffer)],
        rows: usize,
    ) {
        self.defer(core, outputs.iter().map(|(matrix, _)| *matrix));
        for (matrix, _) in outputs {
            self.sums.note(&core.pool, core.read_rows(x, 0..rows), *matrix);
        }
        self.limit(core, outputs.iter().map(|(matrix, _)| *matrix), rows);
        self.products(core, x, outputs, rows);
        core.pool.limit(None);
    }

    /// Begins an operation with `matrix`, after which it is named, without the number of a layer.
    pub fn begin(&self, core: &CpuCore, operation: &str, matrix: Matrix) {
        if core.pool.is_profiled() {
            let parts = self.matrices.get(matrix.0).name.split('.');
            let named = parts.filter(|part| part.parse::<usize>().is_err());
            core.pool.begin(&named.fold(operation.to_owned(), |name, part| name + " " + part));
        }
    }

    fn products(
        &mut self,
        core: &mut CpuCore,
        x: Buffer,
        outputs: &[(Matrix, Buffer)],
        rows: usize,
    ) {
        let in_order = |(matrix, _): &(Matrix, Buffer)| self.matrices.get(matrix.0).order.is_none();
        if outputs.iter().all(in_order) {
            for to in Activations::ALL.into_iter().filter(|to| *to != Activations::F32) {
                let mut matrices = outputs.iter().map(|(matrix, _)| self.matrices.get(matrix.0));
                if matrices.any(|weights| weights.layout.activations == to) {
                    self.rounded.round(core, x, rows, to);
                }
            }
            if let &[output] = outputs
                && self.is_narrow(core, output.0, rows)
            {
                return self.spread_rows(core, x, output, rows);
            }
            for outputs in outputs.chunks(MAX_MATRICES) {
                self.spread(core, x, outputs, rows, false);
            }
        } else {
            for output in outputs {
                self.product_in_order(core, x, *output, rows);
            }
        }
    }

    /// The product with a matrix, whose columns may be permuted.
    fn product_in_order(
        &mut self,
        core: &mut CpuCore,
        x: Buffer,
        output: (Matrix, Buffer),
        rows: usize,
    ) {
        let weights = self.matrices.get(output.0.0);
        let (to, cols) = (weights.layout.activations, weights.cols);
        core.pool.begin("round_inputs");
        self.rounded.gather(core, to, cols, std::slice::from_ref(&(0..rows)), |row, values| {
            weights.take_inputs(core.row(x, row), values);
        });
        self.spread(core, x, &[output], rows, true);
    }

    /// Computes all products, whose tiles the threads share. Where `gathered`, the inputs in f32
    /// are the gathered ones, else `x`; other inputs are rounded before.
    fn spread(
        &self,
        core: &mut CpuCore,
        x: Buffer,
        outputs: &[(Matrix, Buffer)],
        rows: usize,
        gathered: bool,
    ) {
        self.begin(core, "linear", outputs[0].0);
        let mut data: [AlignedVec<f32>; MAX_MATRICES] = Default::default();
        for (data, (_, out)) in data.iter_mut().zip(outputs) {
            *data = core.take(*out);
        }
        let here = &*core;
        let inputs = |weights: &WeightMatrix| match weights.layout.activations {
            Activations::F32 if !gathered => Inputs::f32(here.read_rows(x, 0..rows), here.width(x)),
            to => self.rounded.inputs(to, rows, here.width(x)),
        };
        let mut all = data.iter_mut();
        let mut parts: [(&mut [f32], usize, usize); MAX_MATRICES] =
            std::array::from_fn(|at| match (outputs.get(at), all.next()) {
                (Some((matrix, out)), Some(data)) => {
                    let WeightMatrix { rows: width, cols, .. } = *self.matrices.get(matrix.0);
                    let fits = here.width(x) == cols && here.width(*out) == width;
                    assert!(fits, "buffers fit the matrix");
                    (&mut data[..rows * width], width, columns_per_tile(here, width, cols))
                }
                _ => (&mut [][..], 1, 1),
            });
        here.pool.for_each_tile_of(&mut parts[..outputs.len()], |at, mut tile| {
            let weights = self.matrices.get(outputs[at].0.0);
            self.product(here.isa, inputs(weights), outputs[at].0, &mut tile);
        });
        for (data, (_, out)) in data.into_iter().zip(outputs) {
            core.put(*out, data);
        }
    }

    /// Whether a product of many rows has fewer pieces of columns than there are threads, as a
    /// router's has.
    fn is_narrow(&self, core: &CpuCore, matrix: Matrix, rows: usize) -> bool {
        let weights = self.matrices.get(matrix.0);
        let pieces = weights.rows.div_ceil(columns_per_tile(core, weights.rows, weights.cols));
        let plain = weights.layout.activations == Activations::F32;
        plain && pieces < core.pool.threads() && rows > NARROW_ROWS
    }

    /// Computes the product of rows that are not rounded, of which each thread takes some.
    fn spread_rows(
        &self,
        core: &mut CpuCore,
        x: Buffer,
        (matrix, out): (Matrix, Buffer),
        rows: usize,
    ) {
        self.begin(core, "linear", matrix);
        let mut data = core.take(out);
        let weights = self.matrices.get(matrix.0);
        let (width, inputs) = (weights.rows, Inputs::f32(core.read_rows(x, 0..rows), weights.cols));
        let fits = core.width(x) == weights.cols && core.width(out) == width;
        assert!(fits, "buffers fit the matrix");
        let tile = (NARROW_ROWS, columns_per_tile(core, width, weights.cols));
        core.pool.for_each_tile(&mut data[..rows * width], width, tile, |tile| {
            let rows = tile.rows();
            let mut tile = tile.from(rows.start, 0);
            self.product(core.isa, inputs.slice(rows), matrix, &mut tile);
        });
        core.put(out, data);
    }

    /// Computes a tile of `inputs * matrix^T`: all rows of the inputs, some outputs.
    pub fn product(&self, isa: Isa, inputs: Inputs<'_>, matrix: Matrix, tile: &mut Tile<'_, f32>) {
        let weights = self.matrices.get(matrix.0);
        if let Some(job) = self.matrices.unpacked(matrix.0) {
            return product_on_the_fly(isa, inputs, (weights, job), tile);
        }
        let WeightMatrix { ty, rows, cols, layout, .. } = *weights;
        let bytes = &self.matrices.read(weights);
        layout.product(isa, inputs, Weights { ty, rows, cols, bytes }, tile);
    }
}

/// A tile of a product with weights that are packed here, as many at a time as the nearest caches
/// hold.
fn product_on_the_fly(
    isa: Isa,
    inputs: Inputs<'_>,
    (weights, job): (&WeightMatrix, &PackJob),
    tile: &mut Tile<'_, f32>,
) {
    let WeightMatrix { ty, cols, layout, .. } = *weights;
    let all = tile.cols();
    let each = (ON_THE_FLY / job.group).max(1);
    for start in all.clone().step_by(each * GROUP) {
        let columns = start..(start + each * GROUP).min(all.end);
        let len = columns.len().div_ceil(GROUP) * job.group;
        packed_scratch(len, |bytes| {
            job.pack_on_the_fly(isa, start / GROUP, bytes);
            let weights = Weights { ty, rows: columns.len(), cols, bytes };
            let mut tile = tile.part(columns).from(0, start);
            layout.product(isa, inputs, weights, &mut tile);
        });
    }
}

/// Outputs claimed at a time: enough pieces to even out threads, few enough to be cheap, and
/// whole groups of packed weights.
fn columns_per_tile(core: &CpuCore, outputs: usize, inputs: usize) -> usize {
    let weights = |least: usize| (least / inputs.max(1)).next_power_of_two().clamp(GROUP, 64);
    // Threads without any are worse than small pieces.
    let even = (outputs / core.pool.threads()).next_multiple_of(GROUP);
    let least = weights(MIN_WEIGHTS).min(even.max(weights(MIN_SHARED)));
    (outputs / (core.pool.threads() * 8)).next_multiple_of(least).clamp(least, 512)
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
    use crate::cpu::Cpu;
    use crate::{MatrixSpec, Mode, Operations, PackedWeights, Weights as _};
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
                    let mut data = cpu.core.take(input);
                    data[..x.len()].copy_from_slice(x);
                    cpu.core.put(input, data);
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
