//! The answer of `POST /v1/chat/completions`, whole and as chunks.

use crate::answer::{Answer, Call, Collected, Frame};
use crate::fault::Fault;
use crate::openai::answer::{self, Heading};
use crate::openai::logprobs;
use api::{CallEvent, Delta, TextEvent, TokenText, Usage};
use serde_json::{Value, json};

/// Writes chat completions.
#[derive(Debug)]
pub(crate) struct ChatAnswer {
    heading: Heading,
    /// Choices whose first chunk, with the role, was sent.
    opened: Vec<bool>,
    logprobs: bool,
    stream_usage: bool,
}

impl ChatAnswer {
    /// For an answer of so many choices.
    pub fn new(heading: Heading, choices: usize, logprobs: bool, stream_usage: bool) -> Self {
        Self { heading, opened: vec![false; choices], logprobs, stream_usage }
    }

    fn chunk(&self, choices: Value) -> Value {
        let mut chunk = self.heading.with("chat.completion.chunk", choices);
        if self.stream_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn choice(
        &self,
        index: usize,
        delta: Value,
        logprobs: Value,
        finish_reason: Option<&str>,
    ) -> Value {
        self.chunk(json!([{
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }]))
    }

    fn text(&self, index: usize, name: &str, delta: &Delta) -> Value {
        self.choice(index, json!({ (name): delta.text }), self.logprobs(&delta.tokens), None)
    }

    fn logprobs(&self, tokens: &[TokenText]) -> Value {
        if !self.logprobs {
            return Value::Null;
        }
        json!({ "content": logprobs::chat(tokens), "refusal": null })
    }

    fn message(&self, index: usize, choice: &Collected) -> Value {
        let (content, reasoning) = (choice.content(), choice.reasoning());
        let calls: Vec<Value> = choice.calls().map(whole_call).collect();
        let content = if content.is_empty() && !calls.is_empty() { None } else { Some(content) };
        let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
        if !reasoning.is_empty() {
            message["reasoning_content"] = reasoning.into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        json!({
            "index": index,
            "message": message,
            "logprobs": self.logprobs(&choice.tokens),
            "finish_reason": choice.finish_reason(),
        })
    }
}

impl Answer for ChatAnswer {
    fn frames(&mut self, index: usize, event: TextEvent) -> Vec<Frame> {
        let chunk = match event {
            TextEvent::Reasoning(delta) => self.text(index, "reasoning_content", &delta),
            TextEvent::Content(delta) => self.text(index, "content", &delta),
            TextEvent::Call(event) => match call_delta(event) {
                Some(delta) => {
                    let delta = json!({ "tool_calls": [delta] });
                    self.choice(index, delta, Value::Null, None)
                }
                None => return Vec::new(),
            },
            TextEvent::Done(done) => {
                self.choice(index, json!({}), Value::Null, Some(done.finish.reason()))
            }
            TextEvent::Prefill { .. } | TextEvent::Prompt { .. } | TextEvent::Failed(_) => {
                return Vec::new();
            }
        };
        if std::mem::replace(&mut self.opened[index], true) {
            return vec![Frame::Data(chunk)];
        }
        let role = json!({ "role": "assistant", "content": "" });
        let role = self.choice(index, role, Value::Null, None);
        vec![Frame::Data(role), Frame::Data(chunk)]
    }

    fn close(&mut self, usage: &Usage) -> Vec<Frame> {
        let mut chunk = self.chunk(json!([]));
        chunk["usage"] = answer::usage(usage);
        answer::close(self.stream_usage.then_some(chunk))
    }

    fn broken(&mut self, fault: &Fault) -> Vec<Frame> {
        answer::broken(fault)
    }

    fn whole(&mut self, choices: Vec<Collected>, usage: &Usage) -> Value {
        let messages: Value =
            choices.iter().enumerate().map(|(index, choice)| self.message(index, choice)).collect();
        let mut answer = self.heading.with("chat.completion", messages);
        answer["usage"] = answer::usage(usage);
        answer
    }
}

/// What a chunk says of a call. A broken one gets no further word: its choice does not end in
/// `tool_calls`, and so it is not executed.
fn call_delta(event: CallEvent) -> Option<Value> {
    match event {
        CallEvent::Start { index, id, name } => Some(json!({
            "index": index,
            "id": id,
            "type": "function",
            "function": { "name": name, "arguments": "" },
        })),
        CallEvent::Arguments { index, delta } => {
            Some(json!({ "index": index, "function": { "arguments": delta } }))
        }
        CallEvent::End { .. } | CallEvent::Broken { .. } => None,
    }
}

fn whole_call(call: &Call) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": { "name": call.name, "arguments": call.arguments },
    })
}
