//! RMSNorm over whole rows, or over each head of a row; LayerNorm over whole rows.

use super::ForwardPass;
use crate::Error;
use crate::loader::Loader;
use backend::{Buffer, Vector};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm {
    weight: Vector,
    eps: f32,
    /// What LayerNorm does besides.
    layer: Option<Centred>,
}

/// The mean is subtracted first, and a bias may be added.
#[derive(Clone, Copy, Debug)]
struct Centred {
    bias: Option<Vector>,
    /// Rows without their mean: `[rows, width]`.
    centred: Buffer,
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
        Ok(Self { weight, eps, layer: None })
    }

    /// Loads a norm of the residual stream: the LayerNorm `name.weight` and, if there is one,
    /// `name.bias` where the model has such norms, else the RMSNorm.
    pub fn of_stream(loader: &mut Loader<'_>, name: &str) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let (hidden, eps, layer_norm) =
            (config.hidden_size, config.rms_norm_eps, config.layer_norm);
        let norm = Self::load(loader, name, hidden, eps)?;
        if !layer_norm {
            return Ok(norm);
        }
        let bias = loader.optional(&format!("{name}.bias"), &[hidden])?;
        let centred = loader.shared("centred", hidden)?;
        Ok(Self { layer: Some(Centred { bias, centred }), ..norm })
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
        Ok(Self { weight: loader.backend.vector(weight), eps, layer: None })
    }

    /// A norm of `width` values that does not scale them.
    pub fn without_weight(loader: &mut Loader<'_>, width: usize, eps: f32) -> Self {
        Self { weight: loader.backend.vector(vec![1.0; width]), eps, layer: None }
    }

    /// Normalises each run of the weight's width in the rows of `x`; returns `out`, of `x`'s shape.
    pub fn forward(
        &self,
        pass: &mut ForwardPass<'_>,
        x: Buffer,
        out: Buffer,
        rows: usize,
    ) -> Buffer {
        let Some(Centred { bias, centred }) = self.layer else {
            pass.backend.rms_norm(x, self.weight, self.eps, out, rows);
            return out;
        };
        pass.backend.center(x, centred, rows);
        pass.backend.rms_norm(centred, self.weight, self.eps, out, rows);
        if let Some(bias) = bias {
            pass.backend.add_bias(out, bias, rows);
        }
        out
    }
}
