//! Blocks that architectures are made of. Variation points are data, not types.

mod attention;
mod decoder;
mod head;
mod latent;
mod linear;
mod mlp;
mod moe;
mod norm;
mod rope;

pub(crate) use attention::Attention;
pub(crate) use decoder::Decoder;
pub(crate) use head::Head;
pub(crate) use latent::LatentAttention;
pub(crate) use linear::Linear;
pub(crate) use mlp::GatedMlp;
pub(crate) use moe::Moe;
pub(crate) use norm::Norm;
pub(crate) use rope::frequencies;

use crate::Error;
use backend::{Backend, Batch, Buffer, LayerCache};
use dist::{Comm, Split};
use formats::ModelConfig;

/// What each layer of such a model keeps in the KV cache for a position.
pub fn layer_cache(config: &ModelConfig) -> LayerCache {
    match config.latent() {
        None => LayerCache { heads: config.kv_heads, dim: config.head_dim, latent: None },
        Some(sizes) => {
            let dim = sizes.kv_rank + sizes.rope_dim;
            LayerCache { heads: 1, dim, latent: Some(sizes.kv_rank) }
        }
    }
}

/// What it would keep if keys and values were expanded for each head before they are stored, as
/// numbers of values per position; `None` where they are.
pub fn expanded_cache(config: &ModelConfig) -> Option<usize> {
    let sizes = config.latent()?;
    Some(config.heads * (sizes.nope_dim + sizes.rope_dim + sizes.value_dim))
}

/// One forward pass on its way through the layers.
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

    /// Adds up what all ranks have of `x`, a row for each of the batch, if the `split` of what made
    /// it leaves each with a share.
    pub fn sum_over_ranks(&mut self, x: Buffer, split: Split) -> Result<(), Error> {
        if let (Some(comm), Split::Inputs | Split::Experts) = (self.slices, split) {
            comm.all_reduce_sum(self.backend.values_mut(x, self.batch.rows()))?;
        }
        Ok(())
    }

    /// With checking on: an error naming `stage` if a row of `x` holds NaN or infinities; `x`
    /// has a row for each of the batch.
    pub fn check(&self, x: Buffer, stage: impl FnOnce() -> String) -> Result<(), Error> {
        match self.first_not_finite(x, self.rows()) {
            Some(row) => Err(Error::NotFinite { row, stage: stage() }),
            None => Ok(()),
        }
    }

    /// With checking on: an error if `logits`, a row for each of the batch's logit rows, hold
    /// NaN or infinities.
    pub fn check_logits(&self, logits: Buffer) -> Result<(), Error> {
        let rows = self.batch.logit_rows();
        match self.first_not_finite(logits, rows.len()) {
            Some(at) => {
                Err(Error::NotFinite { row: rows[at] as usize, stage: "output head".into() })
            }
            None => Ok(()),
        }
    }

    fn first_not_finite(&self, x: Buffer, rows: usize) -> Option<usize> {
        if self.check { self.backend.first_not_finite(x, rows) } else { None }
    }
}
