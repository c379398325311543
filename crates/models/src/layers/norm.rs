//! RMSNorm over whole rows, or over each head of a row.

use super::ForwardPass;
use backend::{Buffer, Vector};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm {
    weight: Vector,
    eps: f32,
}

impl Norm {
    pub fn new(weight: Vector, eps: f32) -> Self {
        Self { weight, eps }
    }

    /// Normalises each run of the weight's width in the rows of `x`; returns `out`, of `x`'s shape.
    pub fn forward(
        &self,
        pass: &mut ForwardPass<'_>,
        x: Buffer,
        out: Buffer,
        rows: usize,
    ) -> Buffer {
        pass.backend.rms_norm(x, self.weight, self.eps, out, rows);
        out
    }
}
