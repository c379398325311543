//! The output of a request in one step.

use crate::observe::outcome::Outcome;
use crate::request::fields::TokenLogprobs;
use crate::step::embedding_pooler::EmbeddingPooler;

/// The output of a step for a request.
#[derive(Debug)]
pub(super) struct StepOutput {
    /// Sampled ids.
    pub ids: Vec<u32>,
    /// Log probabilities of the sampled ids, where requested.
    pub logprobs: Vec<Option<TokenLogprobs>>,
    /// Index of the first prompt token that has log probabilities in this step.
    pub first_prompt: usize,
    /// Prompt tokens and their log probabilities.
    pub prompt: Vec<(u32, TokenLogprobs)>,
    /// Logits of prompt tokens, row by row.
    pub rows: Vec<f32>,
    /// Pools hidden states, for requests of one vector.
    pub pooler: Option<EmbeddingPooler>,
    /// How the sequence ends with this step.
    pub outcome: Option<Outcome>,
}

impl StepOutput {
    /// For steps of at most `max_drafted` drafts.
    pub fn new(max_drafted: usize, pooler: Option<EmbeddingPooler>) -> Self {
        let tokens = max_drafted + 1;
        let (ids, logprobs) = (Vec::with_capacity(tokens), Vec::with_capacity(tokens));
        let (prompt, rows) = (Vec::new(), Vec::new());
        Self { ids, logprobs, first_prompt: 0, prompt, rows, pooler, outcome: None }
    }

    /// Forgets the ids of the step before.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.logprobs.clear();
    }

    /// Ends the sequence unless it has ended already.
    pub fn end(&mut self, outcome: Outcome) {
        self.outcome.get_or_insert(outcome);
    }
}
