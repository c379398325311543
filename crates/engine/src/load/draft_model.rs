//! A second, smaller model, whose drafts the model verifies.

use super::error::Error;
use super::runner::Runner;
use backend::Memory;

impl Runner {
    /// Has the engine of this model draft tokens with `draft`, a model with the same vocabulary.
    ///
    /// # Errors
    /// If one of them generates no text or is divided among ranks, or the draft model has states of
    /// sequences.
    pub fn draft_with(&mut self, draft: Self) -> Result<(), Error> {
        let wrong = |problem: &str| Err(Error::DraftModel(problem.to_owned()));
        for (runner, role) in [(&*self, "the model"), (&draft, "the draft model")] {
            if runner.check_generates().is_err() || runner.is_encoder() {
                return wrong(&format!("{role} generates no text"));
            }
            if runner.is_stage || runner.settings.slices > 1 {
                return wrong(&format!("{role} is divided among ranks"));
            }
        }
        if draft.states > 0 {
            return wrong(
                "the draft model has recurrent layers, whose states cannot forget drafts that are \
                 wrong; expected one with attention in all layers",
            );
        }
        self.draft_model = Some(Box::new(draft));
        Ok(())
    }

    /// The model that drafts tokens, if there is one.
    pub fn draft_model(&self) -> Option<&Self> {
        self.draft_model.as_deref()
    }

    /// Takes the model that drafts tokens.
    pub(crate) fn take_draft_model(&mut self) -> Option<Box<Self>> {
        self.draft_model.take()
    }

    /// Bytes held, those of the model that drafts tokens included.
    pub fn memory_of_both(&self) -> Memory {
        let (own, draft) = (self.memory(), self.draft_model().map(Self::memory));
        let draft = draft.unwrap_or_default();
        Memory {
            weights: own.weights + draft.weights,
            workspace: own.workspace + draft.workspace,
            cache: own.cache + draft.cache,
            states: own.states + draft.states,
        }
    }
}
