//! Products of each head's part of a row with a matrix of its own.

use super::products::Products;
use crate::cpu::core::CpuCore;
use crate::handles::{HeadColumns, Matrix};

impl Products {
    /// `out[h] = x[h] * weights[h]^T` for the columns of each head.
    pub fn linear_heads(
        &mut self,
        core: &mut CpuCore,
        from: HeadColumns,
        weights: &[Matrix],
        to: HeadColumns,
        rows: usize,
    ) {
        self.defer(core, weights.iter().copied());
        self.limit(core, weights.iter().copied(), rows);
        let first = self.matrices.get(weights[0].0);
        let (outputs, cols, rounding) = (first.rows, first.cols, first.layout.activations);
        let equal = |matrix: &Matrix| {
            let other = self.matrices.get(matrix.0);
            (other.rows, other.cols) == (outputs, cols) && other.layout.activations == rounding
        };
        assert!(weights.iter().all(equal), "heads are alike");
        assert!(to.first + outputs <= to.stride, "outputs of a head");
        self.note_heads(core, from, weights, rows);
        let Self { matrices, rounded, cuts, .. } = self;
        cuts.clear();
        cuts.extend((0..weights.len()).map(|head| head * rows..(head + 1) * rows));
        core.pool.begin("round_inputs");
        rounded.gather(core, rounding, cols, cuts, |index, values| {
            let (head, row) = (index / rows, index % rows);
            let start = from.first + head * from.stride;
            let x = &core.row(from.buffer, row)[start..][..cols];
            matrices.get(weights[head].0).take_inputs(x, values);
        });
        self.begin(core, "linear_heads", weights[0]);
        let width = core.width(to.buffer);
        let mut data = core.take(to.buffer);
        let strips = (0..weights.len() * to.stride, to.stride);
        let inputs = self.rounded.inputs(rounding, weights.len() * rows, cols);
        core.pool.for_each_strip(&mut data[..rows * width], width, strips, |tile| {
            let head = tile.cols().start / to.stride;
            let start = head * to.stride + to.first;
            let mut tile = tile.columns(start..start + outputs).from(0, start);
            let inputs = inputs.slice(self.cuts[head].clone());
            self.product(core.isa, inputs, weights[head], &mut tile);
        });
        core.put(to.buffer, data);
        core.pool.limit(None);
    }

    /// Sums up the inputs of each head's product, if they are collected.
    fn note_heads(&mut self, core: &CpuCore, from: HeadColumns, weights: &[Matrix], rows: usize) {
        if !self.sums.are_collected() {
            return;
        }
        for (head, matrix) in weights.iter().enumerate() {
            let cols = self.matrices.get(matrix.0).cols;
            let start = from.first + head * from.stride;
            let row = |row: usize| &core.row(from.buffer, row)[start..][..cols];
            let values: Vec<f32> = (0..rows).flat_map(row).copied().collect();
            self.sums.note(&core.pool, &values, *matrix);
        }
    }
}
