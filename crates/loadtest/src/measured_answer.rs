//! Receives one streamed answer: the times of its events, and the usage.

use super::endpoint::Endpoint;
use super::workload::LoadRequest;
use client::{EventParser, ServerSentEvent};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

/// Maximum size of an event in bytes.
const MAX_EVENT: usize = 1 << 20;
/// Maximum number of characters of a server's error message.
const MAX_CHARS: usize = 300;

/// A completed request. Times are seconds since it was sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MeasuredAnswer {
    /// To the first event with text.
    pub first: f64,
    /// To the last event of the answer itself.
    pub last: f64,
    /// Between neighbouring events with text.
    pub gaps: Vec<f32>,
    pub prompt_tokens: usize,
    /// Cached prompt tokens, if the server reports them.
    pub cached_tokens: Option<usize>,
    pub output_tokens: usize,
    /// Events with text.
    pub events: usize,
    /// Whether the counts are from the server; else from ids sent and events received.
    pub counted: bool,
    /// Whether the answer ended before the requested length.
    pub short: bool,
}

impl MeasuredAnswer {
    /// Time per output token after the first in seconds, if there are any.
    pub fn per_token(&self) -> Option<f64> {
        let rest = self.output_tokens.checked_sub(1).filter(|&rest| rest > 0)?;
        Some((self.last - self.first) / rest as f64)
    }

    /// The longest gap in seconds.
    pub fn longest_gap(&self) -> f64 {
        self.gaps.iter().copied().fold(0.0, f32::max).into()
    }
}

/// Why a request did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestFailure {
    /// The kind of failure, by which failures are counted.
    pub kind: String,
    pub message: String,
}

impl RequestFailure {
    pub fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: kind.into(), message: message.into() }
    }
}

#[derive(Debug, Deserialize)]
struct Chunk {
    choices: Option<Vec<ChunkChoice>>,
    usage: Option<ChunkUsage>,
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct ChunkChoice {
    text: Option<String>,
    delta: Option<ChunkDelta>,
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ChunkDelta {
    content: Option<String>,
    #[serde(alias = "reasoning")]
    reasoning_content: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ChunkUsage {
    prompt_tokens: usize,
    completion_tokens: usize,
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Debug, Deserialize)]
struct PromptDetails {
    cached_tokens: Option<usize>,
}

/// Watches one answer from the moment its request is sent.
#[derive(Debug)]
pub(super) struct Watcher {
    endpoint: Endpoint,
    sent: Instant,
    parser: EventParser,
    /// When events with text were received.
    texts: Vec<Instant>,
    /// When the last event of the answer itself was received.
    last: Option<Instant>,
    usage: Option<ChunkUsage>,
    complete: bool,
}

impl Watcher {
    pub fn new(endpoint: Endpoint) -> Self {
        let (sent, parser, texts) = (Instant::now(), EventParser::new(MAX_EVENT), Vec::new());
        Self { endpoint, sent, parser, texts, last: None, usage: None, complete: false }
    }

    /// Adds bytes of the answer, received at `now`.
    ///
    /// # Errors
    /// If an event is too long, cannot be understood, or is an error.
    pub fn push(&mut self, bytes: &[u8], now: Instant) -> Result<(), RequestFailure> {
        let too_long = |_| RequestFailure::new("not understood", "an event is too long");
        let events = self.parser.push(bytes).map_err(too_long)?;
        events.iter().try_for_each(|event| self.event(event, now))
    }

    fn event(&mut self, event: &ServerSentEvent, now: Instant) -> Result<(), RequestFailure> {
        if event.data.trim() == "[DONE]" {
            self.complete = true;
            return Ok(());
        }
        let chunk = serde_json::from_str(&event.data).ok();
        if event.name == "error" || chunk.as_ref().is_some_and(|c: &Chunk| c.error.is_some()) {
            let message = error_message(event.data.as_bytes());
            return Err(RequestFailure::new("error in the stream", message));
        }
        let misread = || RequestFailure::new("not understood", shortened(&event.data));
        let chunk = chunk.ok_or_else(misread)?;
        self.usage = chunk.usage.or(self.usage.take());
        if let Some(choice) = chunk.choices.unwrap_or_default().first() {
            if choice.has_token(self.endpoint) {
                self.texts.push(now);
            }
            self.last = Some(now);
            self.complete |= choice.finish_reason.is_some();
        }
        Ok(())
    }

    /// The answer to `ask`, if it is complete.
    ///
    /// # Errors
    /// If the stream ended before the answer did.
    pub fn finish(self, ask: &LoadRequest) -> Result<MeasuredAnswer, RequestFailure> {
        let (true, Some(last)) = (self.complete, self.last) else {
            let message = "the stream ended before the answer did";
            return Err(RequestFailure::new("broken off", message));
        };
        let (counted, events) = (self.usage.is_some(), self.texts.len());
        let usage = self.usage.unwrap_or(ChunkUsage {
            prompt_tokens: ask.prompt.len(),
            completion_tokens: events,
            prompt_tokens_details: None,
        });
        let since = |moment: Instant| (moment - self.sent).as_secs_f64();
        let gaps = self.texts.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f32());
        Ok(MeasuredAnswer {
            // An answer without any text has no event for its tokens.
            first: since(self.texts.first().copied().unwrap_or(last)),
            last: since(last),
            gaps: gaps.collect(),
            prompt_tokens: usage.prompt_tokens,
            cached_tokens: usage.prompt_tokens_details.and_then(|details| details.cached_tokens),
            output_tokens: usage.completion_tokens,
            events,
            counted,
            short: counted && usage.completion_tokens < ask.output,
        })
    }
}

impl ChunkChoice {
    /// Whether the event stands for a token. Completions have events for tokens without text too;
    /// chats begin with an event that only names the role.
    fn has_token(&self, endpoint: Endpoint) -> bool {
        let delta = self.delta.iter().flat_map(|delta| [&delta.content, &delta.reasoning_content]);
        let mut texts = delta.flatten().chain(&self.text);
        texts.any(|text| !text.is_empty())
            || endpoint == Endpoint::Completions && self.finish_reason.is_none()
    }
}

/// The message in the body of an error: in JSON in any of the usual places, else the text itself.
pub(super) fn error_message(body: &[u8]) -> String {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = json.get("error").unwrap_or(&json);
    let text = error["message"].as_str().or(error.as_str()).or(json["detail"].as_str());
    text.map_or_else(|| shortened(&String::from_utf8_lossy(body)), shortened)
}

/// The first line of a text, cut to a maximum length.
fn shortened(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    line.chars().take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn ask(output: usize) -> LoadRequest {
        LoadRequest { prompt: vec![1; 7], output, seed: 0 }
    }

    /// The answer of events that come 10 ms apart, the first 10 ms after the request.
    fn watch(endpoint: Endpoint, events: &[&str]) -> Result<MeasuredAnswer, RequestFailure> {
        let mut watcher = Watcher::new(endpoint);
        let mut now = watcher.sent;
        for event in events {
            now += Duration::from_millis(10);
            let line = event.replace('\n', " ");
            watcher.push(format!("data: {line}\n\n").as_bytes(), now)?;
        }
        watcher.finish(&ask(3))
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn times_are_of_events_with_text() {
        let answer = watch(
            Endpoint::Completions,
            &[
                r#"{"choices": [{"text": "a", "finish_reason": null}]}"#,
                r#"{"choices": [{"text": "", "finish_reason": null}]}"#,
                r#"{"choices": [{"text": "b", "finish_reason": null}], "usage": null}"#,
                r#"{"choices": [{"text": "", "finish_reason": "length"}]}"#,
                r#"{"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 2}}}"#,
                "[DONE]",
            ],
        );
        let answer = answer.unwrap();
        assert!(close(answer.first, 0.01) && close(answer.last, 0.04), "{answer:?}");
        assert_eq!((answer.gaps.len(), answer.events), (2, 3));
        assert!(close(answer.longest_gap(), 0.01) && close(answer.per_token().unwrap(), 0.015));
        assert_eq!((answer.prompt_tokens, answer.output_tokens), (5, 3));
        assert_eq!((answer.cached_tokens, answer.counted, answer.short), (Some(2), true, false));
    }

    #[test]
    fn a_chat_begins_with_its_first_text() {
        let answer = watch(
            Endpoint::Chat,
            &[
                r#"{"choices": [{"delta": {"role": "assistant", "content": ""}}]}"#,
                r#"{"choices": [{"delta": {"reasoning_content": "a"}}]}"#,
                r#"{"choices": [{"delta": {"content": "b"}, "finish_reason": "stop"}]}"#,
            ],
        );
        let answer = answer.unwrap();
        assert!(close(answer.first, 0.02), "{answer:?}");
        // Without usage: the ids sent, and the events with text.
        assert_eq!((answer.prompt_tokens, answer.output_tokens, answer.counted), (7, 2, false));
    }

    #[test]
    fn errors_are_quoted_from_json_and_from_text() {
        assert_eq!(error_message(br#"{"error": {"message": "too long"}}"#), "too long");
        assert_eq!(error_message(br#"{"error": "too long"}"#), "too long");
        assert_eq!(error_message(b" Bad Gateway\n"), "Bad Gateway");
    }

    #[test]
    fn an_answer_that_ends_early_is_short() {
        let answer = watch(
            Endpoint::Completions,
            &[r#"{"choices": [{"text": "a", "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 1}}"#],
        );
        let answer = answer.unwrap();
        assert!(answer.short && answer.per_token().is_none(), "{answer:?}");
    }

    fn check_failure(events: &[&str], kind: &str, message: &str) {
        let failure = watch(Endpoint::Completions, events).unwrap_err();
        assert_eq!(failure.kind, kind);
        assert!(failure.message.contains(message), "{failure:?}");
    }

    #[test]
    fn what_is_no_answer_is_a_failure_of_its_kind() {
        let text = r#"{"choices": [{"text": "a", "finish_reason": null}]}"#;
        check_failure(&[text], "broken off", "ended before");
        check_failure(&[], "broken off", "ended before");
        check_failure(&["[DONE]"], "broken off", "ended before");
        check_failure(&[text, r#"{"error": {"message": "boom"}}"#], "error in the stream", "boom");
        check_failure(&["oh no"], "not understood", "");
        check_failure(&["<html>"], "not understood", "<html>");
    }
}
