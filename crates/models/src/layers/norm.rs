//! RMSNorm over whole rows, or over each head of a row.

use super::ForwardPass;
use crate::Error;
use crate::loader::Loader;
use backend::{Buffer, Vector};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm {
    weight: Vector,
    eps: f32,
}

impl Norm {
    /// Loads the RMSNorm `name.weight` of `width` values.
    pub fn load(
        loader: &mut Loader<'_>,
        name: &str,
        width: usize,
        eps: f32,
    ) -> Result<Self, Error> {
        let weight = loader.vector(&format!("{name}.weight"), &[width], 0..width)?;
        Ok(Self { weight, eps })
    }

    /// Loads the norm with the weights of the tensor `name` times `factor`.
    pub fn scaled(
        loader: &mut Loader<'_>,
        name: &str,
        width: usize,
        eps: f32,
        factor: f32,
    ) -> Result<Self, Error> {
        let mut weight = loader.checkpoint.require(name, &[width])?.to_f32()?;
        weight.iter_mut().for_each(|value| *value *= factor);
        Ok(Self { weight: loader.backend.vector(weight), eps })
    }

    /// A norm of `width` values that does not scale them.
    pub fn without_weight(loader: &mut Loader<'_>, width: usize, eps: f32) -> Self {
        Self { weight: loader.backend.vector(vec![1.0; width]), eps }
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
