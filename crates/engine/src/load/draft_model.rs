//! A second, smaller model, whose drafts the model verifies.

use super::error::Error;
use super::runner::Runner;
use crate::observe::drafter::MAX_DRAFTED;
use backend::Memory;
use sched::Group;

/// Chosen tokens that a sequence of a draft model may lack and draft all the same. One that lacks
/// more begins anew with what its cache holds.
pub(crate) const MAX_LAG: usize = 4 * MAX_DRAFTED;
/// Rows after the known ones that a step of a draft model may compute, and that the next one may
/// compute again.
pub(crate) const MAX_GUESSES: usize = MAX_LAG + MAX_DRAFTED;

impl Runner {
    /// Has the engine of this model draft tokens with `draft`, a model with the same vocabulary.
    ///
    /// # Errors
    /// If one of them generates no text or is divided among ranks, or the draft model has memory
    /// for too few states or rows of sequences.
    pub fn draft_with(&mut self, draft: Self) -> Result<(), Error> {
        let wrong = |problem: &str| Err(Error::DraftModel(problem.to_owned()));
        for (runner, role) in [(&*self, "the model"), (&draft, "the draft model")] {
            if runner.check_generates().is_err() || runner.is_encoder() {
                return wrong(&format!("{role} generates no text"));
            }
            if runner.ranks.are_several() {
                return wrong(&format!("{role} is divided among ranks"));
            }
        }
        if draft.states == 1 {
            return wrong("the memory for states holds one of the draft model; expected two");
        }
        let trunk = draft.groups[0].blocks;
        if !draft.draft_groups().all(|group| group.holds_window(draft.block(), trunk)) {
            return wrong(
                "the KV memory of the draft model holds too few rows of layers with a window; \
                 expected more with --draft-kv-memory",
            );
        }
        self.draft_model = Some(Box::new(draft));
        Ok(())
    }

    /// The groups of rows of a draft model. With states, rows of drafts may be computed again, and
    /// see as much of a window as they did before.
    pub(crate) fn draft_groups(&self) -> impl Iterator<Item = Group> {
        let more = if self.states > 0 { MAX_GUESSES } else { 0 };
        let groups = self.groups.iter();
        groups.map(move |group| Group {
            window: group.window.map(|window| window + more),
            blocks: group.blocks,
        })
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
