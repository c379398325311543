//! What Ollama's answers consist of: one object, or one line of a stream.

use crate::generate::logprobs::finite;
use crate::protocols::warnings::Warnings;
use api::{Done, Finish, TokenText};
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::{Map, Value};
use std::time::SystemTime;
use utoipa::ToSchema;

/// A line of the answer of a chat, or all of it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatLine {
    /// The model that is served.
    pub model: String,
    /// When this was written, as in RFC 3339.
    pub created_at: String,
    pub message: Said,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<Logprob>>,
    /// Whether this is the last line.
    pub done: bool,
    /// In the last line: what the request asked for and did not get. An extension.
    #[serde(skip_serializing_if = "Warnings::is_empty")]
    #[schema(required = false)]
    pub warnings: Warnings,
    #[serde(flatten)]
    pub end: End,
}

/// What a chat line adds to the message.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Said {
    /// `assistant`.
    pub role: &'static str,
    pub content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Called>,
}

/// A line of the answer of a generation, or all of it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GenerateLine {
    /// The model that is served.
    pub model: String,
    /// When this was written, as in RFC 3339.
    pub created_at: String,
    pub response: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<Logprob>>,
    /// Whether this is the last line.
    pub done: bool,
    /// Ids of the prompt and the answer, for the next request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Vec<u32>>,
    /// In the last line: what the request asked for and did not get. An extension.
    #[serde(skip_serializing_if = "Warnings::is_empty")]
    #[schema(required = false)]
    pub warnings: Warnings,
    #[serde(flatten)]
    pub end: End,
}

/// The members of an end as the document has them: the last line of an answer holds them all, one
/// that says that nothing was to be computed the reason alone, other lines none.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
#[schema(as = EndMembers)]
pub(crate) struct End {
    /// `stop`, `length`, `load` or `unload`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_duration: Option<u64>,
    /// The wait for the computation to begin; the model is always loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    load_duration: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_eval_count: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_eval_duration: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eval_count: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eval_duration: Option<u64>,
}

/// A tool call.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Called {
    pub id: String,
    pub function: CalledFunction,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CalledFunction {
    pub index: usize,
    pub name: String,
    pub arguments: Map<String, Value>,
}

/// A token with its log probability.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Logprob {
    #[serde(flatten)]
    token: Likely,
    /// The most likely tokens in its place, best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    top_logprobs: Vec<Likely>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OllamaLikely)]
struct Likely {
    token: String,
    logprob: f64,
    bytes: Vec<u8>,
}

impl Likely {
    fn new(text: &str, bytes: &[u8], logprob: f32) -> Self {
        let logprob = finite(logprob);
        Self { token: text.to_owned(), logprob, bytes: bytes.to_vec() }
    }
}

/// The log probabilities of `tokens`.
pub(crate) fn logprobs(tokens: &[TokenText]) -> Vec<Logprob> {
    let one = |token: &TokenText| {
        let top = token.top.iter().map(|top| Likely::new(&top.text, &top.bytes, top.logprob));
        let top_logprobs = top.collect();
        Logprob { token: Likely::new(&token.text, &token.bytes, token.logprob), top_logprobs }
    };
    tokens.iter().map(one).collect()
}

impl End {
    /// The end of a request that asked for nothing to be computed.
    pub fn idle(done_reason: &'static str) -> Self {
        Self { done_reason: Some(done_reason), ..Self::default() }
    }

    /// The end of an answer that was computed.
    pub fn of(done: &Done) -> Self {
        let times = &done.timings;
        let nanoseconds = |seconds: f64| Some((seconds.max(0.0) * 1e9) as u64);
        let done_reason = if done.finish == Finish::Length { "length" } else { "stop" };
        Self {
            done_reason: Some(done_reason),
            total_duration: nanoseconds(times.queued_s + times.prefill_s + times.decode_s),
            load_duration: nanoseconds(times.queued_s),
            prompt_eval_count: Some(done.usage.prompt_tokens),
            prompt_eval_duration: nanoseconds(times.prefill_s),
            eval_count: Some(done.usage.completion_tokens),
            eval_duration: nanoseconds(times.decode_s),
        }
    }
}

/// `time` as in RFC 3339, in UTC and to the nanosecond.
pub(crate) fn time(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Nanos, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn times_are_utc_with_nanoseconds() {
        let moment = UNIX_EPOCH + Duration::new(1_700_000_000, 5);
        assert_eq!(time(moment), "2023-11-14T22:13:20.000000005Z");
    }
}
