//! Blocks that architectures are made of. Variation points are data, not types.

mod attention;
mod linear;
mod mlp;
mod norm;
mod rope;

pub(crate) use attention::{Attention, AttentionBuffers};
pub(crate) use linear::Linear;
pub(crate) use mlp::{GatedMlp, MlpBuffers};
pub(crate) use norm::Norm;
pub(crate) use rope::frequencies;

use crate::Error;
use backend::{Backend, Batch, Buffer};

/// One forward pass on its way through the layers.
pub(crate) struct Pass<'a> {
    pub backend: &'a mut dyn Backend,
    pub batch: &'a Batch,
    /// Whether values are checked to be finite after each stage.
    pub check: bool,
}

impl Pass<'_> {
    /// Rows of the batch.
    pub fn rows(&self) -> usize {
        self.batch.rows()
    }

    /// With checking on: an error naming `stage` if `x` holds NaN or infinities.
    pub fn check(
        &self,
        x: Buffer,
        rows: usize,
        stage: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        if self.check && !self.backend.is_finite(x, rows) {
            return Err(Error::NotFinite { stage: stage() });
        }
        Ok(())
    }
}
