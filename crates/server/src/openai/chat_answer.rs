//! The answer of `POST /v1/chat/completions`, whole and as chunks.

use crate::openai::answer::{self, Answer, Collected, Heading};
use crate::openai::logprobs;
use api::{Delta, TextEvent, TokenText, Usage};
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
        let mut message =
            json!({ "role": "assistant", "content": choice.content, "refusal": null });
        if !choice.reasoning.is_empty() {
            message["reasoning_content"] = choice.reasoning.as_str().into();
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
    fn chunks(&mut self, index: usize, event: TextEvent) -> Vec<Value> {
        let chunk = match event {
            TextEvent::Reasoning(delta) => self.text(index, "reasoning_content", &delta),
            TextEvent::Content(delta) => self.text(index, "content", &delta),
            TextEvent::Done(done) => {
                self.choice(index, json!({}), Value::Null, Some(done.finish.reason()))
            }
            TextEvent::Prefill { .. } | TextEvent::Prompt { .. } | TextEvent::Failed(_) => {
                return Vec::new();
            }
        };
        if std::mem::replace(&mut self.opened[index], true) {
            return vec![chunk];
        }
        let role = json!({ "role": "assistant", "content": "" });
        vec![self.choice(index, role, Value::Null, None), chunk]
    }

    fn last_chunk(&mut self, usage: &Usage) -> Option<Value> {
        let mut chunk = self.chunk(json!([]));
        chunk["usage"] = answer::usage(usage);
        self.stream_usage.then_some(chunk)
    }

    fn whole(&mut self, choices: Vec<Collected>, usage: &Usage) -> Value {
        let messages: Value =
            choices.iter().enumerate().map(|(index, choice)| self.message(index, choice)).collect();
        let mut answer = self.heading.with("chat.completion", messages);
        answer["usage"] = answer::usage(usage);
        answer
    }
}
