//! Choice of the next token from logits.
//!
//! Order: logit bias, penalties, bans, top-k, typical, top-p, min-p, temperature, draw. The
//! cut-offs look at probabilities at temperature 1 (as llama.cpp orders its samplers). Ties are
//! broken by the lower id, so that a choice depends on the logits and the seed alone.
//!
//! A vocabulary is large and a choice looks at few of its tokens, so that the whole row is only
//! gone over by kernels: once for its maxima (`survey`), and once or twice for weights where no
//! list of the best will do (`candidates`).

mod candidates;
mod logprobs;
mod survey;

pub(crate) use logprobs::logprobs;

use crate::{Error, SamplingParams};
use base::Rng;
use candidates::{Candidates, Room};
use kernels::Isa;

/// The sampling state of one sequence.
#[derive(Debug)]
pub(crate) struct Sampler {
    params: SamplingParams,
    rng: Rng,
    /// Times each id occurs in the penalty window: (id, in window, of which generated).
    seen: Vec<(u32, u32, u32)>,
}

/// Workspace of all samplers, so that a step allocates nothing.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// Logits that had to be changed.
    logits: Vec<f32>,
    room: Room,
}

impl Scratch {
    pub fn new(vocab_size: usize) -> Self {
        // Each gives the same bits, so that it need not be the backend's.
        let isa = Isa::detect().unwrap_or(Isa::SCALAR);
        Self { logits: vec![0.0; vocab_size], room: Room::new(isa, vocab_size) }
    }
}

/// What a sequence holds so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct History<'a> {
    /// Prompt and generated tokens.
    pub tokens: &'a [u32],
    /// Tokens generated in this step, which come after them.
    pub fresh: &'a [u32],
    /// Length of the prompt.
    pub prompt: usize,
    /// Ids that must not be chosen now.
    pub banned: &'a [u32],
}

impl Sampler {
    /// `vocab_size` bounds the room for counting.
    pub fn new(params: SamplingParams, vocab_size: usize) -> Self {
        let rng = Rng::new(params.seed.unwrap_or_else(Rng::entropy_seed));
        let room = if penalises(&params) { vocab_size } else { 0 };
        Self { params, rng, seen: Vec::with_capacity(room) }
    }

    /// The next token, or [`Error::NotFinite`] or [`Error::NothingLeft`].
    pub fn sample(
        &mut self,
        logits: &[f32],
        history: History<'_>,
        scratch: &mut Scratch,
    ) -> Result<u32, Error> {
        let Scratch { logits: changed, room } = scratch;
        if !room.survey.look(logits) {
            return Err(Error::NotFinite);
        }
        let logits = if self.changes(history) {
            changed.copy_from_slice(logits);
            self.adjust(changed, history);
            room.survey.look(changed);
            changed
        } else {
            logits
        };
        if room.survey.best() == f32::NEG_INFINITY {
            return Err(Error::NothingLeft);
        }
        if self.params.temperature == 0.0 {
            return Ok(room.survey.argmax(logits));
        }
        let mut candidates = Candidates::new(logits, room);
        candidates.top_k(self.params.top_k);
        candidates.typical(self.params.typical_p);
        candidates.top_p(self.params.top_p);
        candidates.min_p(self.params.min_p);
        Ok(candidates.draw(self.params.temperature, self.rng.uniform()))
    }

    /// Whether anything comes before the cut-offs.
    fn changes(&self, history: History<'_>) -> bool {
        !self.params.logit_bias.is_empty() || penalises(&self.params) || !history.banned.is_empty()
    }

    fn adjust(&mut self, logits: &mut [f32], history: History<'_>) {
        for &(id, bias) in &self.params.logit_bias {
            logits[id as usize] += bias;
        }
        if penalises(&self.params) {
            self.penalise(logits, history);
        }
        for &id in history.banned {
            // A stop id may lie outside the model's vocabulary; then it cannot be chosen anyway.
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }

    fn penalise(&mut self, logits: &mut [f32], history: History<'_>) {
        let SamplingParams { repeat_penalty, presence_penalty, frequency_penalty, .. } =
            self.params;
        self.count(history);
        for &(id, _, generated) in &self.seen {
            let logit = &mut logits[id as usize];
            // Keskar et al., 2019: the sign decides, so that a penalty always lowers.
            *logit = if *logit > 0.0 { *logit / repeat_penalty } else { *logit * repeat_penalty };
            *logit -= generated as f32 * frequency_penalty;
            if generated > 0 {
                *logit -= presence_penalty;
            }
        }
    }

    /// Counts the window anew: exact whatever left it, and linear in its length.
    fn count(&mut self, history: History<'_>) {
        let len = history.tokens.len() + history.fresh.len();
        let first = len - self.params.penalty_window.unwrap_or(len).min(len);
        self.seen.clear();
        for (at, &id) in history.tokens.iter().chain(history.fresh).enumerate().skip(first) {
            let generated = u32::from(at >= history.prompt);
            match self.seen.binary_search_by_key(&id, |entry| entry.0) {
                Ok(found) => {
                    self.seen[found].1 += 1;
                    self.seen[found].2 += generated;
                }
                Err(place) => self.seen.insert(place, (id, 1, generated)),
            }
        }
    }
}

fn penalises(params: &SamplingParams) -> bool {
    params.repeat_penalty != 1.0
        || params.presence_penalty != 0.0
        || params.frequency_penalty != 0.0
}

#[cfg(test)]
mod tests;
