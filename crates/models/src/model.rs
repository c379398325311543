//! A model that is loaded.

use crate::classifier::Classifier;
use crate::error::Error;
use crate::projections::Projections;
use backend::{Backend, Batch, Buffer, LayerCache};
use std::sync::Arc;

/// A loaded model. The backend holds its weights.
pub trait Model: Send {
    /// What each layer that this rank holds keeps for a sequence.
    fn cache(&self) -> Vec<LayerCache>;

    /// The projections that adapters may change.
    fn projections(&self) -> &Projections;

    /// The buffer of hidden states of the last batch, `[hidden rows, hidden]`, valid until the next
    /// batch.
    fn hidden(&self) -> Buffer;

    /// The head that scores texts, where the model has one.
    fn classifier(&self) -> Option<&Arc<Classifier>>;

    /// Computes the batch and stores its keys and values. Returns the buffer of logits, `[logit
    /// rows, vocab]`. With `check`, values that are not finite are an error that names where they
    /// arose. Ranks that share the model all compute the batch and get the same logits and hidden
    /// states.
    fn forward(
        &self,
        backend: &mut dyn Backend,
        batch: &Batch,
        check: bool,
    ) -> Result<Buffer, Error>;
}
