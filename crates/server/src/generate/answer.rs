//! How the events of the model become the JSON of a protocol.

use crate::http::error::HttpError;
use crate::http::models::KeepAlive;
use crate::http::sse::{Frame, Framing};
use api::{CallEvent, Done, TextEvent, TokenText, Usage};
use serde_json::{Map, Value};
use std::time::Duration;

/// Writes the events of one request's choices as one protocol's JSON.
///
/// A stream consists of the frames of `open`, which are written before anything is computed, the
/// frames of every event, and the frames of exactly one of `close` and `broken`, with which the
/// protocol ends a stream.
pub(crate) trait Answer: Send + 'static {
    /// How its frames are delimited.
    const FRAMING: Framing = Framing::Events;
    /// Longest time without a frame that clients of the protocol accept.
    const MAX_SILENCE: Duration = Duration::MAX;
    /// Whether answers are streamed to requests that do not say.
    const STREAMS: bool = false;
    /// Whether the JSON of the protocol has the receipt already.
    const HOLDS_RECEIPT: bool = false;

    /// How long the model of a request stays loaded after it, if the protocol lets its body say.
    fn keep_alive(_body: &Value) -> Option<KeepAlive> {
        None
    }
    /// The frames before the first event.
    fn open(&mut self) -> Vec<Frame> {
        Vec::new()
    }
    /// The frames for `event` of the choice `index`.
    fn frames(&mut self, index: usize, event: TextEvent) -> Vec<Frame>;
    /// The frames after the last event, if there are any.
    fn close(&mut self, _usage: &Usage) -> Vec<Frame> {
        Vec::new()
    }
    /// The frames of a stream that ends with an error before the answer begins.
    fn refused(error: &HttpError) -> Vec<Frame>;
    /// The frames of an answer that breaks off.
    fn broken(&mut self, error: &HttpError) -> Vec<Frame> {
        Self::refused(error)
    }
    /// The frame that keeps a stream open before the answer begins, if the protocol has one.
    fn waiting() -> Option<Frame> {
        Some(Frame::Comment("keep-alive"))
    }
    /// The frame that keeps an idle stream open, if the protocol has one.
    fn ping(&self) -> Option<Frame> {
        Self::waiting()
    }
    /// Records an event of an answer that is given whole, for protocols that need more of it than
    /// [`Collected`] holds.
    fn note(&mut self, _index: usize, _event: &TextEvent) {}
    /// Waits until what the answer leaves behind is stored; its end is shown after that. The future
    /// can be dropped while it waits.
    fn settled(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
    /// The whole answer at once.
    fn whole(&mut self, choices: Vec<Collected>, usage: &Usage) -> Value;
}

/// The events of one choice, gathered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collected {
    pub reasoning: String,
    pub content: String,
    pub calls: Vec<AnswerCall>,
    /// The prompt's tokens but the first, where their log probabilities were asked for.
    pub prompt: Vec<TokenText>,
    pub tokens: Vec<TokenText>,
    pub done: Option<Done>,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AnswerCall {
    pub index: usize,
    pub id: String,
    pub name: String,
    /// JSON text of an object; the beginning of one if the limit of tokens ended the answer within
    /// the call.
    pub arguments: String,
}

impl AnswerCall {
    /// The members of the arguments, as far as they came.
    pub fn members(&self) -> Map<String, Value> {
        members(&self.arguments)
    }
}

/// Returns the members of the object of which `arguments` is the text, or the beginning of it.
pub(crate) fn members(arguments: &str) -> Map<String, Value> {
    serde_json::from_str(&text::closed_object(arguments)).unwrap_or_default()
}

impl Collected {
    /// Adds what `event` brings.
    pub fn add(&mut self, event: TextEvent) {
        match event {
            TextEvent::Reasoning(delta) => {
                self.reasoning.push_str(&delta.text);
                self.tokens.extend(delta.tokens);
            }
            TextEvent::Content(delta) => {
                self.content.push_str(&delta.text);
                self.tokens.extend(delta.tokens);
            }
            TextEvent::Call(event) => self.call(event),
            TextEvent::Prompt { tokens, .. } => self.prompt.extend(tokens),
            TextEvent::Done(done) => self.done = Some(done),
            TextEvent::Admitted { .. } | TextEvent::Prefill { .. } | TextEvent::Failed(_) => {}
        }
    }

    fn call(&mut self, event: CallEvent) {
        match event {
            CallEvent::Start { index, id, name } => {
                self.calls.push(AnswerCall { index, id, name, arguments: String::new() });
            }
            CallEvent::Arguments { index, delta } => {
                if let Some(call) = self.calls.iter_mut().rev().find(|call| call.index == index) {
                    call.arguments.push_str(&delta);
                }
            }
            CallEvent::Broken { index } => self.calls.retain(|call| call.index != index),
            CallEvent::End { .. } => {}
        }
    }

    /// Mean log probability of the tokens; the lowest number if there are none.
    pub fn likelihood(&self) -> f32 {
        let sum: f32 = self.tokens.iter().map(|token| token.logprob).sum();
        if self.tokens.is_empty() { f32::NEG_INFINITY } else { sum / self.tokens.len() as f32 }
    }

    /// Why the choice ended, in OpenAI's words.
    pub fn finish_reason(&self) -> Option<&'static str> {
        self.done.as_ref().map(|done| done.finish.reason())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Delta;

    fn content(text: &str) -> TextEvent {
        TextEvent::Content(Delta { text: text.into(), tokens: Vec::new() })
    }

    fn start(index: usize) -> TextEvent {
        let (id, name) = (format!("call_{index}"), "f".to_owned());
        TextEvent::Call(CallEvent::Start { index, id, name })
    }

    fn arguments(index: usize, delta: &str) -> TextEvent {
        TextEvent::Call(CallEvent::Arguments { index, delta: delta.into() })
    }

    #[test]
    fn broken_calls_leave_their_text_and_nothing_else() {
        let mut collected = Collected::default();
        let broken = TextEvent::Call(CallEvent::Broken { index: 1 });
        let events = [content("a"), start(0), arguments(0, "{"), arguments(0, "}"), start(1)];
        events.into_iter().chain([broken, content("x")]).for_each(|event| collected.add(event));
        let calls: Vec<&str> = collected.calls.iter().map(|call| call.arguments.as_str()).collect();
        assert_eq!((collected.content.as_str(), calls), ("ax", vec!["{}"]));
    }
}
