//! A projection: this rank's part of a matrix and of its optional bias.

use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use crate::ranks::Slice;
use backend::{AdaptedRows, Buffer, MapOp, Matrix, Vector};
use dist::Split;
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Linear {
    pub weight: Matrix,
    pub bias: Option<Vector>,
    /// Factor of the products, before the bias is added.
    pub factor: f32,
    /// How the projection is divided among ranks, and thus which part of the outputs this rank has.
    pub split: Split,
    /// Its number among the projections that an adapter may change; `None` where none may.
    pub number: Option<usize>,
}

/// A part of a projection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartOf<'a> {
    /// Name of the projection.
    pub name: &'a str,
    /// Whether the inputs are counted here, and not with another part.
    pub noted: bool,
    /// Name of the factor of the part's outputs.
    pub factor: &'a str,
}

impl Linear {
    /// Loads the part `slice` of the projection `name.weight`, `[outputs, inputs]`, and of
    /// `name.bias` if it exists.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, name: &str, slice: Slice) -> Result<Self, Error> {
        let weight = loader.matrix(&format!("{name}.weight"), &slice)?;
        Self::with_bias(loader, name, weight, slice)
    }

    /// As [`load`](Self::load), but in `exact` mode unless a rule says otherwise, for outputs that
    /// decide discretely. A single output may be stored as a vector.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load_exact(loader: &mut Loader<'_>, name: &str, slice: Slice) -> Result<Self, Error> {
        let weight = loader.exact_matrix(&format!("{name}.weight"), &slice)?;
        Self::with_bias(loader, name, weight, slice)
    }

    /// The projection of `weight`, with the bias `name.bias` if it exists.
    fn with_bias(
        loader: &mut Loader<'_>,
        name: &str,
        weight: Matrix,
        slice: Slice,
    ) -> Result<Self, Error> {
        let &[outputs, inputs] = loader.shape(&format!("{name}.weight")) else {
            unreachable!("a projection is a matrix")
        };
        let values = match &slice {
            Slice::Outputs(part) | Slice::Heads(part) => part.clone(),
            Slice::Whole | Slice::Inputs(_) => 0..outputs,
        };
        let bias = loader.optional_part(&format!("{name}.bias"), values)?;
        // Outputs that are summed over ranks get their bias once.
        let bias = bias.filter(|_| !matches!(slice, Slice::Inputs(_)) || loader.slice.rank() == 0);
        let (factor, split, full) = (loader.factor(name), slice.split(), loader.full_name(name));
        let number = Some(loader.projections.add(&full, [outputs, inputs], slice, factor));
        Ok(Self { weight, bias, factor, split, number })
    }

    /// The outputs `rows` of a projection that holds several, with their biases if there are any.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn part(
        loader: &mut Loader<'_>,
        part: PartOf<'_>,
        rows: Range<usize>,
    ) -> Result<Self, Error> {
        let PartOf { name, noted, factor } = part;
        let weight = format!("{name}.weight");
        let (view, full) = (loader.require(&weight)?.clone(), loader.full_name(&weight));
        let noted = if noted { full.clone() } else { String::new() };
        let weight = loader.part_of(&full, &view.rows(rows.clone()).named(noted))?;
        let bias = loader.optional_part(&format!("{name}.bias"), rows.clone())?;
        let split = Slice::Heads(rows).split();
        Ok(Self { weight, bias, factor: loader.factor(factor), split, number: None })
    }

    /// `out = x W^T + b`, `[rows, inputs]` to `[rows, outputs]`, for this rank's inputs and
    /// outputs, with what adapters add.
    pub fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer, rows: usize) {
        Self::forward_each(pass, x, [(self, out)], rows);
    }

    /// [`forward`](Self::forward) for several projections of one input.
    pub fn forward_each<const N: usize>(
        pass: &mut ForwardPass<'_>,
        x: Buffer,
        outputs: [(&Self, Buffer); N],
        rows: usize,
    ) {
        let batch = pass.batch;
        Self::forward_adapted(pass, x, outputs, rows, batch.adapted());
    }

    /// [`forward`](Self::forward) for the rows that output logits.
    pub fn forward_logits(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer, rows: usize) {
        let batch = pass.batch;
        Self::forward_adapted(pass, x, [(self, out)], rows, batch.adapted_logits());
    }

    fn forward_adapted<const N: usize>(
        pass: &mut ForwardPass<'_>,
        x: Buffer,
        outputs: [(&Self, Buffer); N],
        rows: usize,
        adapted: &[AdaptedRows],
    ) {
        pass.backend.linear(x, &outputs.map(|(linear, out)| (linear.weight, out)), rows);
        for (linear, out) in outputs {
            if linear.factor != 1.0 {
                pass.backend.map(MapOp::Scale(linear.factor), out, rows);
            }
            if let Some(bias) = linear.bias {
                pass.backend.map(MapOp::AddBias(bias), out, rows);
            }
        }
        if !adapted.is_empty() {
            Self::adapt(pass, x, outputs, adapted);
        }
    }

    /// Adds the outputs of the adapters of each row.
    fn adapt<const N: usize>(
        pass: &mut ForwardPass<'_>,
        x: Buffer,
        outputs: [(&Self, Buffer); N],
        adapted: &[AdaptedRows],
    ) {
        let mut changed = [(0, x); N];
        let mut count = 0;
        for (linear, out) in outputs {
            if let Some(number) = linear.number {
                changed[count] = (number, out);
                count += 1;
            }
        }
        let adapters = pass.backend.adapters().expect("adapters are opened for devices with them");
        adapters.add_low_rank(x, &changed[..count], adapted);
    }
}
