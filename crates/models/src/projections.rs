//! The projections of a model that adapters may change, and adapters of them.

use crate::error::Error;
use crate::ranks::Slice;
use backend::{Adapter, LowRank, Mode};
use formats::{AdapterFile, AdapterPair, ProjectionShapes};

/// The projections of a model, in the order in which they were loaded.
#[derive(Clone, Debug, Default)]
pub struct Projections {
    /// Outputs and inputs of the whole projection, by its canonical name.
    shapes: ProjectionShapes,
    /// The part of each that this rank holds.
    slices: Vec<Slice>,
    /// The factor of the products of each.
    factors: Vec<f32>,
}

impl Projections {
    /// Adds a projection of which this rank holds `slice`, and whose products are multiplied by
    /// `factor`. Returns its number.
    pub(crate) fn add(
        &mut self,
        name: &str,
        shape: [usize; 2],
        slice: Slice,
        factor: f32,
    ) -> usize {
        let (number, before) = self.shapes.insert_full(name.to_owned(), shape);
        if before.is_none() {
            self.factors.push(factor);
            self.slices.push(slice);
        }
        number
    }

    /// Outputs and inputs of each whole projection, by its canonical name.
    pub fn shapes(&self) -> &ProjectionShapes {
        &self.shapes
    }

    /// The adapter of a file that was read for these projections: this rank's part of it, for
    /// products in `mode`.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn adapter(&self, file: &AdapterFile, mode: Mode) -> Result<Adapter, Error> {
        let mut pairs: Vec<_> = self.slices.iter().map(|_| None).collect();
        for pair in &file.pairs {
            pairs[pair.projection] = Some(self.part(pair, mode)?);
        }
        Ok(Adapter::new(file.digest.clone(), pairs))
    }

    /// This rank's part of a pair: the rows of the second factor of its outputs, or the columns of
    /// the first of its inputs.
    fn part(&self, pair: &AdapterPair, mode: Mode) -> Result<LowRank, Error> {
        let AdapterPair { projection, rank, a, b, scale } = pair;
        let ([_, inputs], scale) = (self.shapes[*projection], scale * self.factors[*projection]);
        let part = match &self.slices[*projection] {
            Slice::Whole => LowRank::new(*rank, [a, b], scale, mode),
            Slice::Outputs(rows) | Slice::Heads(rows) => {
                let b = &b[rows.start * rank..rows.end * rank];
                LowRank::new(*rank, [a, b], scale, mode)
            }
            Slice::Inputs(columns) => {
                let rows = a.chunks_exact(inputs).flat_map(|row| &row[columns.clone()]);
                let a: Vec<f32> = rows.copied().collect();
                LowRank::new(*rank, [&a, b], scale, mode)
            }
        };
        Ok(part.map_err(backend::Error::from)?)
    }
}
