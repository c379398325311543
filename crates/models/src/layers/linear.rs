//! A projection: this rank's part of a matrix and of its optional bias.

use super::ForwardPass;
use crate::Error;
use crate::loader::Loader;
use crate::ranks::Slice;
use backend::{AdaptedRows, Buffer, Matrix, Vector};
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

impl Linear {
    /// Loads the part `slice` of the projection `name.weight` of shape `[outputs, inputs]`, and of
    /// `name.bias` if it exists.
    pub fn load(
        loader: &mut Loader<'_>,
        name: &str,
        outputs: usize,
        inputs: usize,
        slice: Slice,
    ) -> Result<Self, Error> {
        let weight = loader.matrix(&format!("{name}.weight"), outputs, inputs, &slice)?;
        Self::with_bias(loader, name, [outputs, inputs], weight, slice)
    }

    /// As [`load`](Self::load), but in `exact` mode unless a rule says otherwise, for outputs that
    /// decide discretely. A single output may be stored as a vector.
    pub fn load_exact(
        loader: &mut Loader<'_>,
        name: &str,
        outputs: usize,
        inputs: usize,
        slice: Slice,
    ) -> Result<Self, Error> {
        let weight = loader.exact_matrix(&format!("{name}.weight"), outputs, inputs, &slice)?;
        Self::with_bias(loader, name, [outputs, inputs], weight, slice)
    }

    /// The projection of `weight`, with the bias `name.bias` if it exists.
    fn with_bias(
        loader: &mut Loader<'_>,
        name: &str,
        [outputs, inputs]: [usize; 2],
        weight: Matrix,
        slice: Slice,
    ) -> Result<Self, Error> {
        let values = match &slice {
            Slice::Outputs(part) | Slice::Heads(part) => part.clone(),
            Slice::Whole | Slice::Inputs(_) => 0..outputs,
        };
        let bias = loader.optional_part(&format!("{name}.bias"), &[outputs], values)?;
        // Outputs that are summed over ranks get their bias once.
        let bias = bias.filter(|_| !matches!(slice, Slice::Inputs(_)) || loader.slice.rank() == 0);
        let factor = loader.checkpoint.config().factor_of(in_layer(name));
        let split = slice.split();
        let number = Some(loader.projections.add(name, [outputs, inputs], slice, factor));
        Ok(Self { weight, bias, factor, split, number })
    }

    /// Rows of the projection `tensor`, `[outputs, hidden]`, which holds several, with their biases
    /// if there are any. Its inputs are counted under the name `noted`, unless that is empty;
    /// `part` names its factor.
    pub fn part(
        loader: &mut Loader<'_>,
        (tensor, noted, part): (&str, &str, &str),
        outputs: usize,
        rows: Range<usize>,
    ) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let name =
            if part.is_empty() { in_layer(tensor).trim_end_matches(".weight") } else { part };
        let factor = config.factor_of(name);
        let view = loader.checkpoint.require(tensor, &[outputs, config.hidden_size])?.clone();
        let weight = loader.part_of(tensor, &view.rows(rows.clone()).named(noted.to_owned()))?;
        let bias = format!("{}.bias", tensor.trim_end_matches(".weight"));
        let bias = loader.optional_part(&bias, &[outputs], rows.clone())?;
        let split = Slice::Heads(rows).split();
        Ok(Self { weight, bias, factor, split, number: None })
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
                pass.backend.scale(out, linear.factor, rows);
            }
            if let Some(bias) = linear.bias {
                pass.backend.add_bias(out, bias, rows);
            }
        }
        if !adapted.is_empty() {
            Self::adapt(pass, x, outputs, adapted);
        }
    }

    /// Adds to the outputs what adapters of their rows add.
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
        pass.backend.add_low_rank(x, &changed[..count], adapted);
    }
}

/// The name of a tensor within its layer.
fn in_layer(name: &str) -> &str {
    name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map_or(name, |(_, name)| name)
}
