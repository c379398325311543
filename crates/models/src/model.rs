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

    /// The layers that draft tokens, where they are loaded.
    fn draft_layers(&self) -> Option<&dyn DraftLayers>;

    /// Computes the batch in the layers of this rank, stores its keys and values, and sends what
    /// the layers give to the next stage; the last sends wanted rows to the first. With `check`,
    /// values that are not finite are an error that names where they arose. Ranks that share the
    /// model all launch the same batches in the same order; where there are stages, launching ends
    /// the step of the backend.
    ///
    /// # Errors
    /// With `check`, if a value is not finite; if another rank has ended. Where stages are single
    /// ranks, an error about rows goes to the first in place of wanted rows, and is one of landing.
    fn launch(&self, backend: &mut dyn Backend, batch: &Batch, check: bool) -> Result<(), Error>;

    /// Computes the hidden states and logits of the oldest batch that was launched and has not
    /// landed, on the ranks of the first stage; on others it does nothing. Returns the buffer of
    /// logits, `[logit rows, vocab]`.
    ///
    /// # Errors
    /// With `check`, if a value is not finite; if a stage could not compute rows of the batch, or
    /// another rank has ended.
    fn land(&self, backend: &mut dyn Backend, batch: &Batch, check: bool) -> Result<Buffer, Error>;
}

/// Layers that draft tokens from the states of the model: its own of multi-token prediction, a
/// head of EAGLE-3, whose states are made of several residual streams, or an assistant of Gemma 4.
///
/// The row of a position in the first layer comes from the model's state of the position before and
/// the position's own token; in each further layer from the state that the layer before gives. So
/// the first position, and with each layer one more, has no row. [`Model::land`] stores
/// what all of these layers keep of the rows of its batch.
pub trait DraftLayers {
    /// Number of layers.
    fn layers(&self) -> usize;

    /// Values of a state.
    fn width(&self) -> usize;

    /// The words whose logits are computed, by their numbers in the vocabulary; `None` for the
    /// first ones.
    fn words(&self) -> Option<&[u32]>;

    /// Computes the rows of `batch` in a layer, and stores what is kept of them.
    ///
    /// # Errors
    /// With `check`, if a value is not finite.
    fn draft(
        &self,
        backend: &mut dyn Backend,
        batch: &Batch,
        layer: usize,
        states: DraftStates<'_>,
        check: bool,
    ) -> Result<Drafted, Error>;
}

/// The states from which rows of a layer that drafts tokens are computed: `[rows, width]`.
#[derive(Clone, Copy, Debug)]
pub enum DraftStates<'a> {
    /// The states of the rows themselves: each row is computed from the one before, which the cache
    /// holds where it is before the batch.
    Own(&'a [f32]),
    /// The states of the positions before.
    Before(&'a [f32]),
}

/// What a layer gives that drafts tokens, valid until the next batch.
#[derive(Clone, Copy, Debug)]
pub struct Drafted {
    /// Logits of the token after each row that wants them, of some words of the vocabulary:
    /// `[logit rows, words]`.
    pub logits: Buffer,
    /// States of the rows: `[rows, width]`.
    pub states: Buffer,
}
