//! The decoder and its operations: one file for each, which loads what the specification of the
//! operation lists (`formats::layers`) and computes it.

mod compressed;
mod compressor;
mod convolution;
mod decoder;
mod delta;
mod embedding;
mod experts;
mod grouped;
mod head;
mod indexer;
mod joint;
mod latent;
mod layer_input;
mod linear;
mod mlp;
mod norm;
mod parallel;
mod rope;
mod state_space;
mod streams;

pub(crate) use decoder::Decoder;
pub(crate) use experts::Moe;
pub(crate) use linear::Linear;
pub(crate) use mlp::GatedMlp;
pub(crate) use norm::Norm;
pub(crate) use rope::Rotations;

use crate::Error;
use crate::loader::Loader;
use backend::{Backend, Batch, Buffer, LayerCache};
use compressed::CompressedAttention;
use convolution::ShortConvolution;
use delta::GatedDelta;
use dist::{Comm, Split};
use formats::ModelConfig;
use formats::layers::OpSpec;
use grouped::GroupedAttention;
use joint::MlpAndExperts;
use latent::LatentAttention;
use layer_input::LayerInput;
use parallel::Parallel;
use state_space::StateSpace;

/// What each layer of a model keeps for a sequence. With `native_rounding`, rows are rounded as the
/// model was trained for, where it was.
pub fn layer_caches(config: &ModelConfig, native_rounding: bool) -> Vec<LayerCache> {
    let layers = config.layers.iter().enumerate();
    layers.map(|(number, layer)| layer.cache(number, native_rounding)).collect()
}

/// Values per position that a layer with latent attention caches, and as many as it would cache if
/// keys and values were expanded first; `None` for models without such layers.
pub fn latent_rows(config: &ModelConfig) -> Option<(usize, usize)> {
    config.ops().find_map(|op| match op {
        OpSpec::Latent(spec) => {
            let expanded = spec.heads * (spec.query_dim() + spec.sizes.value_dim);
            Some((spec.sizes.kv_rank + spec.sizes.rope_dim, expanded))
        }
        _ => None,
    })
}

/// An operation that is loaded: `[rows, hidden]` to `[rows, hidden]`.
pub(crate) trait Operation: Send {
    /// The name in errors.
    fn name(&self) -> &'static str;

    /// Which part of the outputs each rank has.
    fn split(&self) -> Split;

    /// What this rank keeps of a sequence.
    fn cache(&self) -> LayerCache {
        LayerCache::default()
    }

    /// The experts that may be read from disk.
    fn experts(&self) -> Option<&Moe> {
        None
    }

    /// Computes `out` from the rows `x` of the batch; stores what is kept of them.
    fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) -> Result<(), Error>;
}

/// The place of an operation in a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpPlace {
    /// Number of the layer.
    pub layer: usize,
    /// Number of the operation's first rows in the cache of the layer.
    pub rows: usize,
}

impl OpPlace {
    /// The number of the layer among those of this rank.
    pub fn of_rank(self, loader: &Loader<'_>) -> usize {
        self.layer - loader.layers.start
    }
}

/// Loads an operation.
pub(crate) fn load(
    loader: &mut Loader<'_>,
    place: OpPlace,
    spec: &OpSpec,
) -> Result<Box<dyn Operation>, Error> {
    Ok(match spec {
        OpSpec::Grouped(spec) => Box::new(GroupedAttention::load(loader, place, spec)?),
        OpSpec::Latent(spec) => Box::new(LatentAttention::load(loader, place, spec)?),
        OpSpec::Compressed(spec) => Box::new(CompressedAttention::load(loader, place, spec)?),
        OpSpec::Delta(spec) => Box::new(GatedDelta::load(loader, place, spec)?),
        OpSpec::StateSpace(spec) => Box::new(StateSpace::load(loader, place, spec)?),
        OpSpec::Convolution(spec) => Box::new(ShortConvolution::load(loader, place, spec)?),
        OpSpec::Mlp(spec) => Box::new(GatedMlp::load(loader, "", spec)?),
        OpSpec::Experts(spec) => Box::new(Moe::load(loader, spec)?),
        OpSpec::Joint(spec) => Box::new(MlpAndExperts::load(loader, spec)?),
        OpSpec::LayerInput(spec) => Box::new(LayerInput::load(loader, spec)?),
        OpSpec::Parallel(specs) => Box::new(Parallel::load(loader, place, specs)?),
    })
}

/// The state of one forward pass.
pub(crate) struct ForwardPass<'a> {
    pub backend: &'a mut dyn Backend,
    pub batch: &'a Batch,
    /// Whether values are checked to be finite after each stage.
    pub check: bool,
    /// The ranks that share tensors.
    pub slices: Option<&'a dyn Comm>,
}

impl ForwardPass<'_> {
    /// Rows of the batch.
    pub fn rows(&self) -> usize {
        self.batch.rows()
    }

    /// Sums `x`, `[rows, hidden]`, over all ranks, if `split` says that each rank has a summand.
    ///
    /// # Errors
    /// If a rank fails.
    pub fn sum_over_ranks(&mut self, x: Buffer, split: Split) -> Result<(), Error> {
        if let (Some(comm), Split::Inputs | Split::Experts) = (self.slices, split) {
            self.exchange(x, self.batch.rows(), |values| comm.all_reduce_sum(values))?;
        }
        Ok(())
    }

    /// Changes the first rows of `x`, `[rows, ..]`, by an exchange with other ranks.
    ///
    /// # Errors
    /// Those of `exchange`.
    pub fn exchange(
        &mut self,
        x: Buffer,
        rows: usize,
        mut exchange: impl FnMut(&mut [f32]) -> Result<(), dist::Error>,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        self.backend.update(x, rows, &mut |values| result = exchange(values));
        Ok(result?)
    }

    /// Checks the rows of `x`, `[rows, ..]`, if checking is on.
    ///
    /// # Errors
    /// If checking is on and a row holds NaN or infinities: then the error names `stage`.
    pub fn check(&mut self, x: Buffer, stage: impl FnOnce() -> String) -> Result<(), Error> {
        match self.first_not_finite(x, self.rows()) {
            Some(row) => Err(Error::NotFinite { row, stage: stage() }),
            None => Ok(()),
        }
    }

    /// Checks `logits`, `[logit rows, vocab]`, if checking is on.
    ///
    /// # Errors
    /// If checking is on and `logits` hold NaN or infinities.
    pub fn check_logits(&mut self, logits: Buffer) -> Result<(), Error> {
        let rows = self.batch.logit_rows();
        match self.first_not_finite(logits, rows.len()) {
            Some(at) => {
                Err(Error::NotFinite { row: rows[at] as usize, stage: "output head".into() })
            }
            None => Ok(()),
        }
    }

    fn first_not_finite(&mut self, x: Buffer, rows: usize) -> Option<usize> {
        if self.check { self.backend.first_not_finite(x, rows) } else { None }
    }
}
