//! The projections of a model that adapters may change, and adapters of them.

use crate::error::Error;
use crate::ranks::{Ranks, Slice};
use backend::{Adapter, LowRank, Mode};
use formats::families::layer_of;
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
    /// The projections of all stages, where there are several.
    staged: Option<StagedProjections>,
}

/// The projections of a model that stages share, in the order in which one rank would load them.
#[derive(Clone, Debug)]
struct StagedProjections {
    shapes: ProjectionShapes,
    /// The number of each among those of this rank, if it has it.
    own: Vec<Option<usize>>,
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

    /// Outputs and inputs of each whole projection of the model, by its canonical name.
    pub fn shapes(&self) -> &ProjectionShapes {
        self.staged.as_ref().map_or(&self.shapes, |staged| &staged.shapes)
    }

    /// The same with the projections of all stages, so that adapters of the whole model can be
    /// read. Every rank must call this.
    ///
    /// # Errors
    /// If a rank has ended.
    pub fn of_all_stages(self, ranks: &Ranks) -> Result<Self, Error> {
        let Some(stages) = &ranks.stages else { return Ok(self) };
        let (rank, others) = (stages.rank(), 1..stages.ranks());
        let list = |shapes: &ProjectionShapes| serde_json::to_vec(shapes).expect("JSON");
        let read = |bytes: &[u8]| -> Result<ProjectionShapes, Error> {
            serde_json::from_slice(bytes)
                .map_err(|error| Error::Config(format!("a stage has another version: {error}")))
        };
        let mut bytes = Vec::new();
        let mut shapes = self.shapes.clone();
        if rank == 0 {
            for stage in others.clone() {
                stages.receive_bytes(stage, &mut bytes)?;
                shapes.extend(read(&bytes)?);
            }
            // The first stage has what comes after the last layer.
            shapes.sort_by(|a, _, b, _| {
                let layer = |name: &str| layer_of(name).unwrap_or(usize::MAX);
                layer(a).cmp(&layer(b))
            });
            others.clone().try_for_each(|stage| stages.send_bytes(stage, &list(&shapes)))?;
        } else {
            stages.send_bytes(0, &list(&self.shapes))?;
            stages.receive_bytes(0, &mut bytes)?;
            shapes = read(&bytes)?;
        }
        let own = shapes.keys().map(|name| self.shapes.get_index_of(name)).collect();
        Ok(Self { staged: Some(StagedProjections { shapes, own }), ..self })
    }

    /// The adapter of a file that was read for these projections: this rank's part of it, for
    /// products in `mode`.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn adapter(&self, file: &AdapterFile, mode: Mode) -> Result<Adapter, Error> {
        let mut pairs: Vec<_> = self.slices.iter().map(|_| None).collect();
        for pair in &file.pairs {
            let own = match &self.staged {
                Some(staged) => staged.own[pair.projection],
                None => Some(pair.projection),
            };
            // Other stages have the others.
            if let Some(number) = own {
                pairs[number] = Some(self.part(number, pair, mode)?);
            }
        }
        Ok(Adapter::new(file.digest.clone(), pairs))
    }

    /// This rank's part of a pair of its projection `number`: the rows of the second factor of its
    /// outputs, or the columns of the first of its inputs.
    fn part(&self, number: usize, pair: &AdapterPair, mode: Mode) -> Result<LowRank, Error> {
        let AdapterPair { rank, a, b, scale, .. } = pair;
        let ([_, inputs], scale) = (self.shapes[number], scale * self.factors[number]);
        let part = match &self.slices[number] {
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
