//! What all OpenAI answers share: their heading, the usage, and the seam between the events of
//! the model and a protocol's JSON.

use crate::random;
use api::{Done, TextEvent, TokenText, Usage};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes the events of one request's choices as one protocol's JSON.
pub(crate) trait Answer: Send + 'static {
    /// The chunks of a stream that tell `event` of the choice `index`.
    fn chunks(&mut self, index: usize, event: TextEvent) -> Vec<Value>;
    /// The chunk after the last event, if there is one.
    fn last_chunk(&mut self, usage: &Usage) -> Option<Value>;
    /// The whole answer at once.
    fn whole(&mut self, choices: Vec<Collected>, usage: &Usage) -> Value;
}

/// The events of one choice, gathered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collected {
    pub reasoning: String,
    pub content: String,
    pub tokens: Vec<TokenText>,
    pub done: Option<Done>,
}

impl Collected {
    /// Adds what `event` brings.
    pub fn add(&mut self, event: TextEvent) {
        let (text, delta) = match event {
            TextEvent::Reasoning(delta) => (&mut self.reasoning, delta),
            TextEvent::Content(delta) => (&mut self.content, delta),
            TextEvent::Done(done) => return self.done = Some(done),
            TextEvent::Prefill { .. } | TextEvent::Prompt { .. } | TextEvent::Failed(_) => return,
        };
        text.push_str(&delta.text);
        self.tokens.extend(delta.tokens);
    }

    /// Mean log probability of its tokens; one without any is worth the least.
    pub fn likelihood(&self) -> f32 {
        let sum: f32 = self.tokens.iter().map(|token| token.logprob).sum();
        if self.tokens.is_empty() { f32::NEG_INFINITY } else { sum / self.tokens.len() as f32 }
    }

    /// Why the choice ended.
    pub fn finish_reason(&self) -> Option<&'static str> {
        self.done.as_ref().map(|done| done.finish.reason())
    }
}

/// The members that every chunk and answer begins with.
#[derive(Clone, Debug)]
pub(crate) struct Heading {
    pub id: String,
    created: u64,
    model: String,
    fingerprint: String,
}

impl Heading {
    /// A new answer of `model`, its id beginning with `prefix`.
    pub fn new(prefix: &str, model: &str) -> Self {
        Self {
            id: random::id(prefix),
            created: unix_now(),
            model: model.to_owned(),
            fingerprint: fingerprint(model),
        }
    }

    /// The object named `object` with these choices.
    pub fn with(&self, object: &str, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        })
    }
}

/// Token counts as OpenAI writes them.
pub(crate) fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": { "cached_tokens": usage.cached_tokens },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "accepted_prediction_tokens": usage.accepted_tokens,
            "rejected_prediction_tokens": usage.drafted_tokens - usage.accepted_tokens,
        },
    })
}

/// Seconds since 1970.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Changes when the program or the model does: FNV-1a over both names.
fn fingerprint(model: &str) -> String {
    let names = env!("CARGO_PKG_VERSION").bytes().chain(model.bytes());
    let hash = names.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("fp_{:010x}", hash & 0xff_ffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_is_of_the_model() {
        assert_eq!(fingerprint("a"), fingerprint("a"));
        assert_ne!(fingerprint("a"), fingerprint("b"));
        assert_eq!(fingerprint("a").len(), "fp_".len() + 10);
    }

    #[test]
    fn total_is_the_sum() {
        let counts = Usage { prompt_tokens: 3, completion_tokens: 4, ..Usage::default() };
        assert_eq!(usage(&counts)["total_tokens"], 7);
    }
}
