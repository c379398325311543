//! The layers of a model that draft tokens, computed batch by batch.

use super::error::Error;
use super::runner::Runner;
use backend::Batch;
use models::DraftLayers;

/// What a layer gives that drafts tokens.
#[derive(Debug)]
pub(crate) struct LayerDrafts<'a> {
    /// Logits of the token after each row that wants them: `[logit rows, vocab_size]`.
    pub logits: &'a [f32],
    /// States of the rows: `[rows, width]`.
    pub states: &'a [f32],
}

impl Runner {
    /// Number of layers of multi-token prediction that are loaded.
    pub fn mtp_layers(&self) -> usize {
        self.model.mtp().map_or(0, DraftLayers::layers)
    }

    /// Values of a state that such layers read and give; 0 without them.
    pub(crate) fn state_width(&self) -> usize {
        self.model.mtp().map_or(0, DraftLayers::width)
    }

    /// The states of the rows of `batch`, which was computed last, for the first of these layers:
    /// `[rows, width]`. Without such layers there are none.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn states(&mut self, batch: &Batch) -> Result<&[f32], Error> {
        let Some(mtp) = self.model.mtp() else { return Ok(&[]) };
        self.backend.begin(batch);
        let states = mtp.states(&mut *self.backend, batch);
        self.backend.fetch(states, batch.rows());
        self.backend.end()?;
        Ok(self.backend.read(states, batch.rows()))
    }

    /// Computes the rows of `batch` in a layer from the `states` of the positions before them,
    /// `[rows, width]`.
    ///
    /// # Errors
    /// If the model has no such layer, a checked value is not finite or the device fails.
    pub(crate) fn draft(
        &mut self,
        batch: &Batch,
        layer: usize,
        states: &[f32],
    ) -> Result<LayerDrafts<'_>, Error> {
        let Some(mtp) = self.model.mtp().filter(|mtp| layer < mtp.layers()) else {
            return Err(Error::NoDraftLayers);
        };
        self.backend.begin(batch);
        let drafted = mtp.draft(&mut *self.backend, batch, layer, states, self.check)?;
        let (rows, logits) = (batch.rows(), batch.logit_rows().len());
        self.backend.fetch(drafted.logits, logits);
        self.backend.fetch(drafted.states, rows);
        self.backend.end()?;
        let read = |buffer, rows| self.backend.read(buffer, rows);
        Ok(LayerDrafts { logits: read(drafted.logits, logits), states: read(drafted.states, rows) })
    }
}
