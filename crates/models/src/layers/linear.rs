//! A projection: matrix, and bias where the checkpoint has one; all of it, or what this rank has.

use super::ForwardPass;
use backend::{Buffer, Matrix, Vector};
use dist::Split;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Linear {
    weight: Matrix,
    bias: Option<Vector>,
    split: Split,
}

impl Linear {
    pub fn new(weight: Matrix, bias: Option<Vector>, split: Split) -> Self {
        Self { weight, bias, split }
    }

    /// How it is shared out over ranks, and thus what each has of the outputs.
    pub fn split(&self) -> Split {
        self.split
    }

    /// `out = x W^T + b`, `[rows, inputs]` to `[rows, outputs]`, with the inputs and outputs that
    /// this rank has.
    pub fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer, rows: usize) {
        Self::forward_each(pass, x, [(self, out)], rows);
    }

    /// The same for several projections of one input.
    pub fn forward_each<const N: usize>(
        pass: &mut ForwardPass<'_>,
        x: Buffer,
        outputs: [(&Self, Buffer); N],
        rows: usize,
    ) {
        pass.backend.linear(x, &outputs.map(|(linear, out)| (linear.weight, out)), rows);
        for (linear, out) in outputs {
            if let Some(bias) = linear.bias {
                pass.backend.add_bias(out, bias, rows);
            }
        }
    }
}
