//! Hyper-connections (DeepSeek V4), as they are defined.

use super::gates::sigmoid;
use super::machine::Reference;
use super::rows::dot;
use crate::handles::{Buffer, HyperSpec, StreamFactors};

impl Reference {
    /// The factors of each row.
    pub(super) fn factors(&mut self, z: Buffer, spec: &HyperSpec, out: Buffer, rows: usize) {
        self.each_row(out, rows, |this, row, out| {
            let (base, scale) = (&this.vectors[spec.base.0], &this.vectors[spec.scale.0]);
            let (z, n) = (this.row(z, row), spec.streams);
            let logit = |at: usize, part: usize| z[at] * scale[part] + base[at];
            (0..n).for_each(|at| out[at] = sigmoid(logit(at, 0)) + spec.eps);
            match spec.kind {
                StreamFactors::Head => {}
                StreamFactors::Apart { magnitude } => {
                    let written = |at| magnitude * sigmoid(logit(at, 1)) + spec.eps;
                    (n..2 * n).for_each(|at| out[at] = written(at));
                    let same = |at: usize| if at.is_multiple_of(n + 1) { 1.0 } else { 0.0 };
                    (0..n * n).for_each(|at| out[2 * n + at] = same(at));
                }
                StreamFactors::All => {
                    (n..2 * n).for_each(|at| out[at] = 2.0 * sigmoid(logit(at, 1)));
                    (2 * n..(2 + n) * n).for_each(|at| out[at] = logit(at, 2));
                    sinkhorn(&mut out[2 * n..(2 + n) * n], n, spec.iterations, spec.eps);
                }
            }
        });
    }

    pub(super) fn read(&mut self, x: Buffer, factors: Buffer, out: Buffer, rows: usize) {
        self.each_row(out, rows, |this, row, out| {
            let width = out.len();
            for (at, out) in out.iter_mut().enumerate() {
                let streams = this.row(x, row).chunks_exact(width).zip(this.row(factors, row));
                *out = streams.map(|(stream, factor)| factor * stream[at]).sum();
            }
        });
    }

    pub(super) fn gate(&mut self, [keys, queries, values]: [Buffer; 3], out: Buffer, rows: usize) {
        self.each_row(out, rows, |this, row, out| {
            let values = this.row(values, row);
            let (hidden, keys) = (values.len(), this.row(keys, row));
            let queries = this.row(queries, row);
            for (at, out) in out.iter_mut().enumerate() {
                let of = at / hidden * hidden..at / hidden * hidden + hidden;
                let product = dot(&keys[of.clone()], &queries[of]) / (hidden as f32).sqrt();
                let root = product.abs().max(1e-6).sqrt().copysign(product);
                *out = sigmoid(root) * values[at % hidden];
            }
        });
    }

    pub(super) fn write(&mut self, x: Buffer, factors: Buffer, y: Buffer, rows: usize) {
        self.each_row(x, rows, |this, row, x| {
            let (factors, y, before) = (this.row(factors, row), this.row(y, row), x.to_vec());
            let n = x.len() / y.len();
            for (to, stream) in x.chunks_exact_mut(y.len()).enumerate() {
                for (at, value) in stream.iter_mut().enumerate() {
                    let kept =
                        |from: usize| factors[(2 + from) * n + to] * before[from * y.len() + at];
                    *value = factors[n + to] * y[at] + (0..n).map(kept).sum::<f32>();
                }
            }
        });
    }
}

/// A softmax of each row of `c`, `[n, n]`, then columns and rows divided by their sums in turns.
fn sinkhorn(c: &mut [f32], n: usize, iterations: usize, eps: f32) {
    for row in c.chunks_exact_mut(n) {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        row.iter_mut().for_each(|value| *value = (*value - most).exp());
        let sum: f32 = row.iter().sum();
        row.iter_mut().for_each(|value| *value = *value / sum + eps);
    }
    for iteration in 0..iterations {
        if iteration > 0 {
            for row in c.chunks_exact_mut(n) {
                let sum = row.iter().sum::<f32>() + eps;
                row.iter_mut().for_each(|value| *value /= sum);
            }
        }
        for column in 0..n {
            let sum = (0..n).map(|row| c[row * n + column]).sum::<f32>() + eps;
            (0..n).for_each(|row| c[row * n + column] /= sum);
        }
    }
}
