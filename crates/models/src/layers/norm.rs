//! RMSNorm over whole rows, or over each head of a row; LayerNorm over whole rows.

use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use backend::{Buffer, MapOp, RmsNorm, Vector};
use formats::layers::{NormKind, NormSpec};
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm {
    norm: RmsNorm,
    /// The steps of LayerNorm that RMSNorm lacks.
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
    /// Loads the RMSNorm `name.weight`.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape.
    pub fn load(loader: &mut Loader<'_>, name: &str, eps: f32) -> Result<Self, Error> {
        let name = format!("{name}.weight");
        let unit = loader.shape(&name)[0];
        let weight = loader.vector(&name)?;
        Ok(Self { norm: RmsNorm { weight, unit, eps }, layer: None })
    }

    /// Loads the values `part` of the RMSNorm `name.weight`, of which `unit` are normalised
    /// together.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape.
    pub fn of_units(
        loader: &mut Loader<'_>,
        name: &str,
        (unit, eps): (usize, f32),
        part: Range<usize>,
    ) -> Result<Self, Error> {
        let weight = loader.vector_part(&format!("{name}.weight"), part)?;
        Ok(Self { norm: RmsNorm { weight, unit, eps }, layer: None })
    }

    /// Loads RMSNorms of these names, of equal width, each of a part of rows: one after the other.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape.
    pub fn of_parts(loader: &mut Loader<'_>, names: &[String], eps: f32) -> Result<Self, Error> {
        let mut weights = Vec::new();
        for name in names {
            weights.extend(loader.require(&format!("{name}.weight"))?.to_f32()?);
        }
        let unit = weights.len() / names.len().max(1);
        let weight = loader.backend.vector(weights);
        Ok(Self { norm: RmsNorm { weight, unit, eps }, layer: None })
    }

    /// Loads a norm of the residual stream.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn of_stream(loader: &mut Loader<'_>, spec: &NormSpec) -> Result<Self, Error> {
        match spec.kind {
            NormKind::Layer(_) => Self::centred(loader, spec.name, spec.eps, "centred"),
            NormKind::Rms => Self::load(loader, spec.name, spec.eps),
            NormKind::Bare => Ok(Self::without_weight(loader, loader.hidden(), spec.eps)),
        }
    }

    /// Loads the LayerNorm `name.weight` and, if there is one, `name.bias`. `buffer` names the
    /// workspace that it shares with others of its width.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn centred(
        loader: &mut Loader<'_>,
        name: &str,
        eps: f32,
        buffer: &'static str,
    ) -> Result<Self, Error> {
        let norm = Self::load(loader, name, eps)?;
        let bias = loader.optional(&format!("{name}.bias"))?;
        let centred = loader.shared(buffer, norm.norm.unit)?;
        Ok(Self { layer: Some(Centred { bias, centred }), ..norm })
    }

    /// Loads the norm with the weights of the tensor `name` times `factor`.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape.
    pub fn scaled(
        loader: &mut Loader<'_>,
        name: &str,
        eps: f32,
        factor: f32,
    ) -> Result<Self, Error> {
        let mut weight = loader.require(name)?.to_f32()?;
        weight.iter_mut().for_each(|value| *value *= factor);
        let (unit, weight) = (weight.len(), loader.backend.vector(weight));
        Ok(Self { norm: RmsNorm { weight, unit, eps }, layer: None })
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
            pass.backend.map(MapOp::AddBias(bias), out, rows);
        }
        out
    }
}
