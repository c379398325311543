//! Choice of the next token from logits.
//!
//! Order: logit bias, penalties, bans and masks, top-k, typical, top-p, min-p, temperature, draw.
//! The cut-offs use probabilities at temperature 1 (the order of llama.cpp's samplers). Ties go to
//! the lower id, so that a choice depends on the logits and the seed alone. A greedy choice is that
//! of temperature 0: biases, penalties, bans and masks count for it too.
//!
//! A vocabulary is large and a choice concerns few of its tokens, so only kernels pass over the
//! whole row: once for its maxima (`survey`), and once or twice for weights where a list of the
//! best does not suffice (`candidates`).

mod candidates;
mod history;
mod logprobs;
mod scratch;
mod seen;
mod survey;

pub(crate) use history::History;
pub(crate) use logprobs::logprobs;
pub(crate) use scratch::SamplerScratch;

use crate::load::error::Error;
use crate::request::fields::SamplingParams;
use crate::request::fields::TokenLogprobs;
use base::Rng;
use candidates::Candidates;
use seen::Seen;

/// The sampling state of one sequence.
#[derive(Debug)]
pub(crate) struct Sampler {
    params: SamplingParams,
    rng: Rng,
}

impl Sampler {
    pub fn new(params: SamplingParams) -> Self {
        let rng = Rng::new(params.seed.unwrap_or_else(Rng::entropy_seed));
        Self { params, rng }
    }

    /// Chooses the next token from logits `[vocab_size]`. If `top` is given, reports the log
    /// probabilities with which the token and the `top` most likely ones were drawn.
    ///
    /// # Errors
    ///
    /// [`Error::NotFinite`] or [`Error::NothingLeft`].
    pub fn sample(
        &mut self,
        logits: &[f32],
        history: History<'_>,
        scratch: &mut SamplerScratch,
        top: Option<usize>,
    ) -> Result<(u32, Option<TokenLogprobs>), Error> {
        let SamplerScratch { logits: changed, seen, workspace } = scratch;
        if !workspace.survey.look(logits) {
            return Err(Error::NotFinite);
        }
        let logits = if self.changes(history) {
            changed.copy_from_slice(logits);
            self.adjust(changed, seen, history);
            workspace.survey.look(changed);
            changed
        } else {
            logits
        };
        if workspace.survey.best == f32::NEG_INFINITY {
            return Err(Error::NothingLeft);
        }
        let temperature = self.params.temperature;
        // Drawn for greedy choices too: the random number of a token depends on its place alone.
        let uniform = if temperature == 0.0 { 0.0 } else { self.rng.uniform() };
        if temperature == 0.0 || history.greedy {
            let id = workspace.survey.argmax(logits);
            let certain = |top| TokenLogprobs { logprob: 0.0, top: vec![(id, 0.0); top] };
            return Ok((id, top.map(|top| certain(top.min(1)))));
        }
        let mut candidates = Candidates::new(logits, workspace);
        candidates.top_k(self.params.top_k);
        candidates.typical(self.params.typical_p);
        candidates.top_p(self.params.top_p);
        candidates.min_p(self.params.min_p);
        let id = candidates.draw(temperature, uniform);
        Ok((id, top.map(|top| candidates.logprobs(temperature, id, top))))
    }

    /// The generator of the random numbers of the next tokens.
    pub fn rng(&self) -> Rng {
        self.rng.clone()
    }

    /// As [`sample`](Self::sample), with the random numbers of `rng` in place of its own.
    ///
    /// # Errors
    ///
    /// As [`sample`](Self::sample).
    pub fn sample_ahead(
        &mut self,
        rng: &mut Rng,
        logits: &[f32],
        history: History<'_>,
        scratch: &mut SamplerScratch,
    ) -> Result<u32, Error> {
        std::mem::swap(&mut self.rng, rng);
        let chosen = self.sample(logits, history, scratch, None);
        std::mem::swap(&mut self.rng, rng);
        Ok(chosen?.0)
    }

    /// Whether logits are modified before the cut-offs.
    fn changes(&self, history: History<'_>) -> bool {
        !self.params.logit_bias.is_empty()
            || penalises(&self.params)
            || !history.banned.is_empty()
            || history.allowed.is_some()
    }

    fn adjust(&self, logits: &mut [f32], seen: &mut Seen, history: History<'_>) {
        for &(id, bias) in &self.params.logit_bias {
            logits[id as usize] += bias;
        }
        if penalises(&self.params) {
            self.penalise(logits, seen, history);
        }
        for &id in history.banned {
            // A stop id outside the model's vocabulary cannot be chosen anyway.
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
        if let Some(allowed) = history.allowed {
            allowed.apply(logits);
        }
    }

    fn penalise(&self, logits: &mut [f32], seen: &mut Seen, history: History<'_>) {
        let SamplingParams { repeat_penalty, presence_penalty, frequency_penalty, .. } =
            self.params;
        seen.count(history, self.params.penalty_window);
        seen.drain(|id, generated| {
            let logit = &mut logits[id as usize];
            // Keskar et al., 2019: the sign decides, so that a penalty always lowers.
            *logit = if *logit > 0.0 { *logit / repeat_penalty } else { *logit * repeat_penalty };
            *logit -= generated as f32 * frequency_penalty;
            if generated > 0 {
                *logit -= presence_penalty;
            }
        });
    }
}

fn penalises(params: &SamplingParams) -> bool {
    params.repeat_penalty != 1.0
        || params.presence_penalty != 0.0
        || params.frequency_penalty != 0.0
}

#[cfg(test)]
mod tests;
