//! Token counts and times of one request, also when a stop string ends the answer before the engine
//! reports its own.

use crate::prediction::PredictionFollower;
use engine::Finished;
use engine::Timings;
use std::time::Instant;

/// Token counts of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Generated tokens, reasoning and the tokens of a matched stop string included.
    pub completion_tokens: usize,
    /// Generated tokens of reasoning.
    pub reasoning_tokens: usize,
    /// Prompt tokens found in the cache instead of computed.
    pub cached_tokens: usize,
    /// Drafted tokens; 0 if a stop string ended the answer.
    pub drafted_tokens: usize,
    /// Drafted tokens that were accepted.
    pub accepted_tokens: usize,
    /// Tokens of the prediction that the answer has.
    pub predicted_tokens: usize,
    /// Tokens of the prediction that the answer lacks.
    pub unpredicted_tokens: usize,
}

/// Counts the tokens and times of one request.
#[derive(Debug)]
pub(crate) struct UsageCounter {
    pub usage: Usage,
    prediction: PredictionFollower,
    submitted: Instant,
    queued_s: f64,
    first_token: Option<Instant>,
}

impl UsageCounter {
    /// A counter of a request with so many tokens, whose client expects the answer `prediction`.
    pub fn new(prompt_tokens: usize, prediction: Vec<u32>) -> Self {
        let prediction = PredictionFollower::new(prediction);
        let unpredicted_tokens = prediction.counts().1;
        Self {
            usage: Usage { prompt_tokens, unpredicted_tokens, ..Usage::default() },
            prediction,
            submitted: Instant::now(),
            queued_s: 0.0,
            first_token: None,
        }
    }

    /// Records that the request is admitted.
    pub fn admitted(&mut self, cached_tokens: usize, queued_s: f64) {
        self.usage.cached_tokens = cached_tokens;
        self.queued_s = queued_s;
    }

    pub fn token(&mut self, id: u32) {
        self.first_token.get_or_insert_with(Instant::now);
        let usage = &mut self.usage;
        usage.completion_tokens += 1;
        self.prediction.token(id);
        (usage.predicted_tokens, usage.unpredicted_tokens) = self.prediction.counts();
    }

    /// The counts of a request that the engine finished.
    pub fn finished(&self, finished: &Finished) -> (Usage, Timings) {
        let engine::Usage { cached_tokens, drafted_tokens, accepted_tokens, .. } = finished.usage;
        let usage = Usage { cached_tokens, drafted_tokens, accepted_tokens, ..self.usage };
        (usage, finished.timings)
    }

    /// The counts of a request that ends before the engine finishes it.
    pub fn cut(&self) -> (Usage, Timings) {
        let now = Instant::now();
        let first_token = self.first_token.unwrap_or(now);
        let timings = Timings {
            queued_s: self.queued_s,
            prefill_s: ((first_token - self.submitted).as_secs_f64() - self.queued_s).max(0.0),
            decode_s: (now - first_token).as_secs_f64(),
        };
        (self.usage, timings)
    }
}
