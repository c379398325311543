//! Tokens and times of answers, as llama.cpp's server reports them.
//!
//! Source: the README of llama.cpp's server. A rate of generation is over the steps between
//! tokens, because the first token comes from the computation of the prompt.

use api::{Delta, Done, Usage};
use serde::Serialize;
use std::time::{Duration, Instant};
use utoipa::ToSchema;

/// Tokens and times of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = AnswerTimings)]
pub(crate) struct Timings {
    /// Prompt tokens found in the cache.
    cache_n: usize,
    /// Prompt tokens computed.
    prompt_n: usize,
    prompt_ms: f64,
    prompt_per_token_ms: f64,
    prompt_per_second: f64,
    /// Tokens generated.
    predicted_n: usize,
    predicted_ms: f64,
    predicted_per_token_ms: f64,
    predicted_per_second: f64,
    /// Drafted tokens that were verified.
    draft_n: usize,
    /// Drafted tokens that were accepted.
    draft_n_accepted: usize,
}

/// How much of a prompt is there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct PromptProgress {
    /// Tokens of the prompt.
    total: usize,
    /// Tokens found in the cache.
    cache: usize,
    /// Tokens found in the cache or computed so far.
    processed: usize,
    /// Milliseconds since the request was admitted.
    time_ms: u64,
}

/// Sums that timings are made of.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    cached: usize,
    computed: usize,
    generated: usize,
    /// Steps between generated tokens.
    steps: usize,
    prefill_s: f64,
    decode_s: f64,
    drafted: usize,
    accepted: usize,
}

impl From<Totals> for Timings {
    fn from(sums: Totals) -> Self {
        let Totals { cached, computed, generated, steps, prefill_s, decode_s, drafted, accepted } =
            sums;
        // Without a step no time was spent between tokens.
        let decode_s = if steps == 0 { 0.0 } else { decode_s };
        Self {
            cache_n: cached,
            prompt_n: computed,
            prompt_ms: 1e3 * prefill_s,
            prompt_per_token_ms: share(1e3 * prefill_s, computed as f64),
            prompt_per_second: share(computed as f64, prefill_s),
            predicted_n: generated,
            predicted_ms: 1e3 * decode_s,
            predicted_per_token_ms: share(1e3 * decode_s, steps as f64),
            predicted_per_second: share(steps as f64, decode_s),
            draft_n: drafted,
            draft_n_accepted: accepted,
        }
    }
}

impl Timings {
    /// Of an answer that has ended.
    pub fn of(done: &Done) -> Self {
        Self::of_all([(true, done)])
    }

    /// Of all answers to a request. Each prompt counts with its first answer, which is marked.
    pub fn of_all<'a>(all: impl IntoIterator<Item = (bool, &'a Done)>) -> Self {
        let mut sums = Totals::default();
        for (first_of_prompt, Done { usage, timings, .. }) in all {
            if first_of_prompt {
                sums.cached += usage.cached_tokens;
                sums.computed += usage.prompt_tokens.saturating_sub(usage.cached_tokens);
                sums.prefill_s += timings.prefill_s;
            }
            sums.generated += usage.completion_tokens;
            sums.steps += usage.completion_tokens.saturating_sub(1);
            sums.decode_s += timings.decode_s;
            sums.drafted += usage.drafted_tokens;
            sums.accepted += usage.accepted_tokens;
        }
        sums.into()
    }
}

/// JSON has no infinities: a rate over nothing is 0.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// How far one answer is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChoiceProgress {
    cached: usize,
    /// Prompt tokens that are there.
    done: usize,
    /// Prompt tokens.
    total: usize,
    generated: usize,
    /// Generated tokens of reasoning.
    reasoning: usize,
    /// When the request was admitted.
    admitted: Option<Instant>,
    /// Time from the admission to the last report of computed prompt tokens.
    prefill: Duration,
    first_token: Option<Instant>,
}

impl ChoiceProgress {
    /// Tokens generated so far.
    pub fn generated(&self) -> usize {
        self.generated
    }

    /// Records that `done` of `total` prompt tokens are there, `cached` of them from the cache.
    pub fn prefill(&mut self, cached: usize, done: usize, total: usize) -> PromptProgress {
        let admitted = *self.admitted.get_or_insert_with(Instant::now);
        // What the cache had took no time.
        let elapsed = if done > cached { admitted.elapsed() } else { Duration::ZERO };
        (self.cached, self.done, self.total, self.prefill) = (cached, done, total, elapsed);
        let time_ms = elapsed.as_millis() as u64;
        PromptProgress { total, cache: cached, processed: done, time_ms }
    }

    /// Records a piece of the answer.
    pub fn add(&mut self, delta: &Delta) {
        self.first_token.get_or_insert_with(Instant::now);
        self.generated += delta.tokens.len();
    }

    /// Records a piece of the reasoning.
    pub fn add_reasoning(&mut self, delta: &Delta) {
        self.reasoning += delta.tokens.len();
        self.add(delta);
    }

    /// The token counts so far: those of the end, once it is there, or those of the text that was
    /// given.
    pub fn usage_by(&self, done: Option<&Done>) -> Usage {
        done.map_or_else(|| self.usage(), |done| done.usage)
    }

    fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.total,
            cached_tokens: self.cached,
            completion_tokens: self.generated,
            reasoning_tokens: self.reasoning,
            ..Usage::default()
        }
    }

    /// The times so far.
    pub fn timings(&self) -> Timings {
        let decode = self.first_token.map_or(Duration::ZERO, |first| first.elapsed());
        let sums = Totals {
            cached: self.cached,
            computed: self.done.saturating_sub(self.cached),
            generated: self.generated,
            steps: self.generated.saturating_sub(1),
            prefill_s: self.prefill.as_secs_f64(),
            decode_s: decode.as_secs_f64(),
            ..Totals::default()
        };
        sums.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Finish;

    fn done(completion_tokens: usize) -> Done {
        Done {
            finish: Finish::Length,
            usage: Usage {
                prompt_tokens: 13,
                cached_tokens: 3,
                completion_tokens,
                ..Usage::default()
            },
            timings: engine::Timings { queued_s: 9.0, prefill_s: 2.0, decode_s: 0.5 },
            receipt: None,
        }
    }

    #[test]
    fn rates_are_over_computed_tokens_and_steps() {
        let timings = Timings::of(&done(5));
        assert_eq!((timings.cache_n, timings.prompt_n, timings.predicted_n), (3, 10, 5));
        assert_eq!((timings.prompt_per_token_ms, timings.predicted_per_second), (200.0, 8.0));
        let one = Timings::of(&done(1));
        assert_eq!((one.predicted_n, one.predicted_ms, one.predicted_per_second), (1, 0.0, 0.0));
        assert_eq!(Timings::of_all([]), Timings::default());
    }

    #[test]
    fn prompts_count_once_and_answers_each() {
        let (one, two) = (done(5), done(3));
        let all = Timings::of_all([(true, &one), (false, &two)]);
        assert_eq!((all.prompt_n, all.prompt_ms, all.predicted_n), (10, 2000.0, 8));
        assert_eq!(all.predicted_per_second, 6.0);
    }

    #[test]
    fn progress_begins_without_time() {
        let mut choice = ChoiceProgress::default();
        let begin = choice.prefill(4, 4, 9);
        assert_eq!(begin, PromptProgress { total: 9, cache: 4, processed: 4, time_ms: 0 });
        assert_eq!(choice.timings(), Timings { cache_n: 4, ..Timings::default() });
        choice.prefill(4, 9, 9);
        let timings = choice.timings();
        assert!(timings.prompt_n == 5 && timings.prompt_ms > 0.0 && timings.predicted_n == 0);
    }
}
