//! A projection: matrix, and bias where the checkpoint has one.

use super::Pass;
use backend::{Buffer, Matrix, Vector};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Linear {
    weight: Matrix,
    bias: Option<Vector>,
}

impl Linear {
    pub fn new(weight: Matrix, bias: Option<Vector>) -> Self {
        Self { weight, bias }
    }

    /// `out = x W^T + b`, `[rows, inputs]` to `[rows, outputs]`.
    pub fn forward(&self, pass: &mut Pass<'_>, x: Buffer, out: Buffer, rows: usize) {
        pass.backend.linear(x, self.weight, out, rows);
        if let Some(bias) = self.bias {
            pass.backend.add_bias(out, bias, rows);
        }
    }
}
