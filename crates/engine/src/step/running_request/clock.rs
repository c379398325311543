//! The times of a request.

use crate::observe::metrics::{Metrics, RequestTotals};
use crate::observe::outcome::Outcome;
use crate::request::fields::Timings;
use std::time::{Duration, Instant};

/// When a request was submitted, admitted and given its tokens, and how long it may take.
#[derive(Debug)]
pub(super) struct RequestClock {
    submitted: Instant,
    /// Maximum time from submission to the end.
    timeout: Option<Duration>,
    admitted: Option<Instant>,
    /// When its prompt was computed.
    prompt_end: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
}

impl RequestClock {
    pub fn new(submitted: Instant, timeout: Option<Duration>) -> Self {
        Self {
            submitted,
            timeout,
            admitted: None,
            prompt_end: None,
            first_token: None,
            last_token: None,
        }
    }

    /// The outcome of a request whose time is up.
    pub fn expired(&self) -> Option<Outcome> {
        let timeout = self.timeout?;
        (self.submitted.elapsed() >= timeout).then_some(Outcome::TimedOut(timeout))
    }

    /// Starts the computation and returns the time in the queue; `None` if it has started before.
    pub fn admit(&mut self) -> Option<Duration> {
        if self.admitted.is_some() {
            return None;
        }
        self.admitted = Some(Instant::now());
        Some(self.submitted.elapsed())
    }

    /// Counts the prompt, of which `computed` tokens were not in the cache, once it is computed.
    pub fn record_prompt(&mut self, computed: usize, metrics: &Metrics) {
        if self.prompt_end.is_none() {
            let now = Instant::now();
            self.prompt_end = Some(now);
            metrics.prompt_computed(now - self.admitted.unwrap_or(now), computed);
        }
    }

    /// Counts the `computed` tokens of a prompt whose request ends before it is computed.
    pub fn record_cut_prompt(&self, computed: usize, metrics: &Metrics) {
        if self.prompt_end.is_none() {
            metrics.prompt_cut(computed);
        }
    }

    /// Counts `tokens` generated tokens of a step.
    pub fn record_tokens(&mut self, tokens: usize, metrics: &Metrics) {
        if tokens == 0 {
            return;
        }
        let now = Instant::now();
        match self.last_token.replace(now) {
            Some(last) => metrics.tokens(tokens, now - last),
            None => {
                self.first_token = Some(now);
                metrics.first_token(self.submitted.elapsed());
                metrics.tokens(tokens - 1, Duration::ZERO);
            }
        }
    }

    /// The totals of a request that ends at `now`.
    pub fn totals(&self, now: Instant, prompt_tokens: usize, generated: usize) -> RequestTotals {
        let decode = self.first_token.map_or(Duration::ZERO, |first| now - first);
        RequestTotals { prompt_tokens, generated, total: now - self.submitted, decode }
    }

    /// The times of a request that ends at `now`.
    pub fn timings(&self, now: Instant) -> Timings {
        let admitted = self.admitted.unwrap_or(now);
        let first = self.first_token.unwrap_or(now);
        Timings {
            queued_s: (admitted - self.submitted).as_secs_f64(),
            prefill_s: (first - admitted).as_secs_f64(),
            decode_s: (now - first).as_secs_f64(),
        }
    }
}
