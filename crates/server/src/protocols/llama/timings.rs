//! How long an answer took, in llama.cpp's words.

use api::Done;
use serde::Serialize;
use utoipa::ToSchema;

/// Tokens and times of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Timings {
    /// Prompt tokens found in the cache.
    pub cache_n: usize,
    /// Prompt tokens computed.
    pub prompt_n: usize,
    pub prompt_ms: f64,
    pub prompt_per_token_ms: f64,
    pub prompt_per_second: f64,
    /// Tokens generated.
    pub predicted_n: usize,
    pub predicted_ms: f64,
    pub predicted_per_token_ms: f64,
    pub predicted_per_second: f64,
}

impl Timings {
    /// Of counts and seconds: cached and computed prompt tokens, generated ones.
    pub fn new(counts: [usize; 3], prefill_s: f64, decode_s: f64) -> Self {
        let [cache_n, prompt_n, predicted_n] = counts;
        Self {
            cache_n,
            prompt_n,
            prompt_ms: 1e3 * prefill_s,
            prompt_per_token_ms: share(1e3 * prefill_s, prompt_n as f64),
            prompt_per_second: share(prompt_n as f64, prefill_s),
            predicted_n,
            predicted_ms: 1e3 * decode_s,
            predicted_per_token_ms: share(1e3 * decode_s, predicted_n as f64),
            predicted_per_second: share(predicted_n as f64, decode_s),
        }
    }

    /// Of an answer that has ended.
    pub fn of(done: &Done) -> Self {
        let usage = &done.usage;
        let computed = usage.prompt_tokens.saturating_sub(usage.cached_tokens);
        let counts = [usage.cached_tokens, computed, usage.completion_tokens];
        Self::new(counts, done.timings.prefill_s, done.timings.decode_s)
    }
}

/// JSON knows no infinities: a share of nothing is nothing.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_takes_no_time() {
        assert_eq!(Timings::new([0, 0, 0], 0.0, 0.0), Timings::default());
        let timings = Timings::new([3, 10, 4], 2.0, 0.5);
        assert_eq!((timings.prompt_per_token_ms, timings.predicted_per_second), (200.0, 8.0));
    }
}
