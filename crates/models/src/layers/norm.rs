//! RMSNorm over whole rows, or over each head of a row; LayerNorm over whole rows.

use super::ForwardPass;
use crate::Error;
use crate::loader::Loader;
use backend::{Buffer, RmsNorm, Vector};
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm {
    norm: RmsNorm,
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
        Ok(Self { norm: RmsNorm { weight, unit: width, eps }, layer: None })
    }

    /// Loads the values `part` of the RMSNorm `name.weight` of `width` values, of which `unit` are
    /// normalised together.
    pub fn of_units(
        loader: &mut Loader<'_>,
        name: &str,
        (width, part): (usize, Range<usize>),
        unit: usize,
    ) -> Result<Self, Error> {
        let eps = loader.checkpoint.config().rms_norm_eps;
        let weight = loader.vector(&format!("{name}.weight"), &[width], part)?;
        Ok(Self { norm: RmsNorm { weight, unit, eps }, layer: None })
    }

    /// Loads a norm of the residual stream: the LayerNorm `name.weight` and, if there is one,
    /// `name.bias` where the model has such norms, else the RMSNorm.
    pub fn of_stream(loader: &mut Loader<'_>, name: &str) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let (hidden, eps, layer_norm) =
            (config.hidden_size, config.rms_norm_eps, config.layer_norm);
        match layer_norm {
            true => Self::centred(loader, name, (hidden, eps), "centred"),
            false => Self::load(loader, name, hidden, eps),
        }
    }

    /// Loads the LayerNorm `name.weight` of `width` values and, if there is one, `name.bias`.
    /// `buffer` names the workspace that it shares with others of its width.
    pub fn centred(
        loader: &mut Loader<'_>,
        name: &str,
        (width, eps): (usize, f32),
        buffer: &'static str,
    ) -> Result<Self, Error> {
        let norm = Self::load(loader, name, width, eps)?;
        let bias = loader.optional(&format!("{name}.bias"), &[width])?;
        let centred = loader.shared(buffer, width)?;
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
        let weight = loader.backend.vector(weight);
        Ok(Self { norm: RmsNorm { weight, unit: width, eps }, layer: None })
    }

    /// A norm of `width` values that does not scale them.
    pub fn without_weight(loader: &mut Loader<'_>, width: usize, eps: f32) -> Self {
        let weight = loader.backend.vector(vec![1.0; width]);
        Self { norm: RmsNorm { weight, unit: width, eps }, layer: None }
    }

    /// Normalises each unit of values in the rows of `x`; returns `out`, of `x`'s shape.
    pub fn forward(
        &self,
        pass: &mut ForwardPass<'_>,
        x: Buffer,
        out: Buffer,
        rows: usize,
    ) -> Buffer {
        let Some(Centred { bias, centred }) = self.layer else {
            pass.backend.rms_norm(x, self.norm, out, rows);
            return out;
        };
        pass.backend.center(x, centred, rows);
        pass.backend.rms_norm(centred, self.norm, out, rows);
        if let Some(bias) = bias {
            pass.backend.add_bias(out, bias, rows);
        }
        out
    }
}
