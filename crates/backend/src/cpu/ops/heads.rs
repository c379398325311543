//! Products of each head's part of a row with a matrix of its own.

use crate::cpu::Cpu;
use crate::{HeadColumns, Matrix};

impl Cpu {
    /// `out[h] = x[h] * weights[h]^T` for the columns of each head.
    pub(in crate::cpu) fn head_products(
        &mut self,
        from: HeadColumns,
        weights: &[Matrix],
        to: HeadColumns,
        rows: usize,
    ) {
        let first = self.matrices.get(weights[0].0);
        let (outputs, cols, rounding) = (first.rows, first.cols, first.layout.activations);
        let equal = |matrix: &Matrix| {
            let other = self.matrices.get(matrix.0);
            (other.rows, other.cols) == (outputs, cols) && other.layout.activations == rounding
        };
        assert!(weights.iter().all(equal), "heads are alike");
        assert!(to.first + outputs <= to.stride, "outputs of a head");
        self.note_heads(from, weights, rows);
        let mut rounded = std::mem::take(&mut self.rounded);
        let mut cuts = std::mem::take(&mut self.cuts);
        cuts.clear();
        cuts.extend((0..weights.len()).map(|head| head * rows..(head + 1) * rows));
        self.pool.begin("round_inputs");
        self.gather(&mut rounded, rounding, cols, &cuts, |index, values| {
            let (head, row) = (index / rows, index % rows);
            let start = from.first + head * from.stride;
            let x = &self.row(from.buffer, row)[start..][..cols];
            self.matrices.get(weights[head].0).take_inputs(x, values);
        });
        self.begin_products("linear_heads", weights[0]);
        let width = self.width(to.buffer);
        let mut data = self.take(to.buffer);
        let strips = (0..weights.len() * to.stride, to.stride);
        let (this, inputs) = (&*self, rounded.inputs(rounding, weights.len() * rows, cols));
        this.pool.for_each_strip(&mut data[..rows * width], width, strips, |tile| {
            let head = tile.cols().start / to.stride;
            let start = head * to.stride + to.first;
            let mut tile = tile.columns(start..start + outputs).from(0, start);
            let inputs = inputs.slice(cuts[head].clone());
            this.product(inputs, weights[head], &mut tile);
        });
        self.put(to.buffer, data);
        (self.rounded, self.cuts) = (rounded, cuts);
    }

    /// Sums up the inputs of each head's product, if they are collected.
    fn note_heads(&mut self, from: HeadColumns, weights: &[Matrix], rows: usize) {
        if self.inputs.is_none() {
            return;
        }
        for (head, matrix) in weights.iter().enumerate() {
            let cols = self.matrices.get(matrix.0).cols;
            let start = from.first + head * from.stride;
            let row = |row: usize| &self.row(from.buffer, row)[start..][..cols];
            let values: Vec<f32> = (0..rows).flat_map(row).copied().collect();
            self.note_rows(&values, *matrix);
        }
    }
}
