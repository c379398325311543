//! The numbers of an answer, as its events tell them.

use crate::commands::agent::terminal::TurnStatus;
use agent::AnswerStart;
use api::TextEvent;
use engine::Timings;
use std::time::Instant;

/// The numbers below the editor, and the times that rates are computed from.
#[derive(Debug)]
pub(super) struct TurnNumbers {
    /// The numbers.
    pub status: TurnStatus,
    begun: Instant,
    /// When the answer's first token came.
    first: Option<Instant>,
}

impl TurnNumbers {
    /// No answer yet.
    pub fn new() -> Self {
        Self { status: TurnStatus::default(), begun: Instant::now(), first: None }
    }

    /// Begins an answer.
    pub fn begin(&mut self, start: &AnswerStart) {
        (self.begun, self.first) = (Instant::now(), None);
        self.status.used = start.prompt_tokens;
        (self.status.cached, self.status.computed, self.status.generated) = (0, 0, 0);
        (self.status.prefill, self.status.prefill_rate, self.status.rate) = (None, None, None);
    }

    /// Takes an event of the answer; whether a number is another.
    pub fn take(&mut self, event: &TextEvent) -> bool {
        match event {
            TextEvent::Prefill { cached, done, total } => {
                let computed = done.saturating_sub(*cached);
                (self.status.cached, self.status.computed) = (*cached, computed);
                self.status.prefill = (done < total).then_some((*done, *total));
                let seconds = self.begun.elapsed().as_secs_f64();
                self.status.prefill_rate = rate(computed, seconds).or(self.status.prefill_rate);
            }
            TextEvent::Reasoning(_) | TextEvent::Content(_) | TextEvent::Call(_) => {
                // Each is a token, or nearly so; the end has the right number.
                let first = *self.first.get_or_insert_with(Instant::now);
                self.status.generated += 1;
                self.status.rate = rate(self.status.generated, first.elapsed().as_secs_f64());
                self.status.prefill = None;
            }
            TextEvent::Done(done) => {
                let usage = &done.usage;
                self.status.used = usage.prompt_tokens + usage.completion_tokens;
                self.status.cached = usage.cached_tokens;
                self.status.computed = usage.prompt_tokens.saturating_sub(usage.cached_tokens);
                self.status.generated = usage.completion_tokens;
                let (prefill, decode) = self.seconds(&done.timings);
                self.status.prefill_rate = rate(self.status.computed, prefill);
                self.status.rate = rate(self.status.generated, decode);
                self.status.prefill = None;
            }
            _ => return false,
        }
        true
    }

    /// The times of prefill and decoding: the engine's, or what was seen of them.
    fn seconds(&self, timings: &Timings) -> (f64, f64) {
        if timings.prefill_s + timings.decode_s > 0.0 {
            return (timings.prefill_s, timings.decode_s);
        }
        let first = self.first.unwrap_or_else(Instant::now);
        (first.duration_since(self.begun).as_secs_f64(), first.elapsed().as_secs_f64())
    }
}

/// Tokens in a second; `None` where too little is known.
fn rate(tokens: usize, seconds: f64) -> Option<f64> {
    (tokens > 0 && seconds >= 1e-3).then(|| tokens as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{Delta, Done, Finish, Usage};

    #[test]
    fn the_numbers_are_those_of_the_answer() {
        let mut numbers = TurnNumbers::new();
        numbers.begin(&AnswerStart { prompt_tokens: 100, rendered_anew: None });
        assert!(numbers.take(&TextEvent::Prefill { cached: 40, done: 60, total: 100 }));
        let TurnStatus { used, cached, computed, prefill, .. } = numbers.status;
        assert_eq!((used, cached, computed, prefill), (100, 40, 20, Some((60, 100))));
        assert!(numbers.take(&TextEvent::Prefill { cached: 40, done: 100, total: 100 }));
        assert_eq!(numbers.status.prefill, None);
        let delta = || Delta { text: "x".into(), tokens: Vec::new() };
        assert!(numbers.take(&TextEvent::Reasoning(delta())));
        assert!(numbers.take(&TextEvent::Content(delta())));
        assert_eq!(numbers.status.generated, 2);
        let usage = Usage {
            prompt_tokens: 100,
            cached_tokens: 40,
            completion_tokens: 5,
            ..Usage::default()
        };
        let timings = Timings { prefill_s: 2.0, decode_s: 0.5, ..Timings::default() };
        let finish = Finish::Complete;
        numbers.take(&TextEvent::Done(Done { finish, usage, timings, receipt: None }));
        let TurnStatus { used, computed, generated, prefill_rate, rate, .. } = numbers.status;
        assert_eq!((used, computed, generated), (105, 60, 5));
        assert_eq!((prefill_rate, rate), (Some(30.0), Some(10.0)));
        // A new answer has none of them.
        numbers.begin(&AnswerStart { prompt_tokens: 105, rendered_anew: None });
        assert_eq!((numbers.status.computed, numbers.status.rate), (0, None));
    }
}
