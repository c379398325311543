//! The decoder and its operations. Variants of an operation are data, not types.

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

/// What a layer keeps in the KV cache for each position.
pub fn layer_cache(config: &ModelConfig) -> LayerCache {
    match config.latent() {
        None => LayerCache { heads: config.kv_heads, dim: config.head_dim, latent: None },
        Some(sizes) => {
            let dim = sizes.kv_rank + sizes.rope_dim;
            LayerCache { heads: 1, dim, latent: Some(sizes.kv_rank) }
        }
    }
}

/// Values per position that a layer with latent attention would cache if keys and values were
/// expanded first; `None` for grouped attention.
pub fn expanded_cache(config: &ModelConfig) -> Option<usize> {
    let sizes = config.latent()?;
    Some(config.heads * (sizes.nope_dim + sizes.rope_dim + sizes.value_dim))
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
    pub fn sum_over_ranks(&mut self, x: Buffer, split: Split) -> Result<(), Error> {
        if let (Some(comm), Split::Inputs | Split::Experts) = (self.slices, split) {
            self.exchange(x, self.batch.rows(), |values| comm.all_reduce_sum(values))?;
        }
        Ok(())
    }

    /// Changes the first rows of `x`, `[rows, ..]`, by an exchange with other ranks.
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

    /// With checking on, an error that names `stage` if a row of `x`, `[rows, ..]`, holds NaN or
    /// infinities.
    pub fn check(&mut self, x: Buffer, stage: impl FnOnce() -> String) -> Result<(), Error> {
        match self.first_not_finite(x, self.rows()) {
            Some(row) => Err(Error::NotFinite { row, stage: stage() }),
            None => Ok(()),
        }
    }

    /// With checking on, an error if `logits`, `[logit rows, vocab]`, hold NaN or infinities.
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
