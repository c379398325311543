//! The layers of a model that draft tokens, computed batch by batch.

use super::error::Error;
use super::runner::Runner;
use backend::Batch;
use models::{DraftLayers, DraftStates};

/// What a layer gives that drafts tokens.
#[derive(Debug)]
pub(crate) struct LayerDrafts<'a> {
    /// Logits of the token after each row that wants them, of some words of the vocabulary:
    /// `[logit rows, words]`.
    pub logits: &'a [f32],
    /// States of the rows: `[rows, width]`.
    pub states: &'a [f32],
    /// The words by their numbers, where they are not the first ones.
    pub words: Option<&'a [u32]>,
}

impl Runner {
    /// Number of layers that draft tokens.
    pub fn draft_layers(&self) -> usize {
        self.model.draft_layers().map_or(0, DraftLayers::layers)
    }

    /// Values of a state that such layers read and give; 0 without them.
    pub(crate) fn state_width(&self) -> usize {
        self.model.draft_layers().map_or(0, DraftLayers::width)
    }

    /// Computes the rows of `batch` in a layer that drafts tokens.
    ///
    /// # Errors
    /// If the model has no such layer, a checked value is not finite or the device fails.
    pub(crate) fn draft(
        &mut self,
        batch: &Batch,
        layer: usize,
        states: DraftStates<'_>,
    ) -> Result<LayerDrafts<'_>, Error> {
        let layers = self.model.draft_layers().filter(|layers| layer < layers.layers());
        let Some(layers) = layers else { return Err(Error::NoDraftLayers) };
        self.backend.begin(batch);
        let drafted = layers.draft(&mut *self.backend, batch, layer, states, self.check)?;
        let (rows, logits) = (batch.rows(), batch.logit_rows().len());
        self.backend.fetch(drafted.logits, logits);
        self.backend.fetch(drafted.states, rows);
        self.backend.end()?;
        let read = |buffer, rows| self.backend.read(buffer, rows);
        let (logits, states) = (read(drafted.logits, logits), read(drafted.states, rows));
        Ok(LayerDrafts { logits, states, words: layers.words() })
    }
}
