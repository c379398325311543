//! The answer of `POST /v1/completions`, whole and as chunks.

use crate::answer::{Answer, Collected, Frame};
use crate::fault::Fault;
use crate::openai::answer::{self, Heading};
use crate::openai::logprobs::TextLogprobs;
use api::{TextEvent, TokenText, Usage};
use serde_json::{Value, json};

const OBJECT: &str = "text_completion";

/// Writes text completions.
#[derive(Debug)]
pub(crate) struct CompletionAnswer {
    heading: Heading,
    choices: Vec<Choice>,
    logprobs: bool,
    stream_usage: bool,
}

/// Where one choice stands.
#[derive(Clone, Debug)]
struct Choice {
    /// The prompt, until it was sent.
    echo: Option<String>,
    /// Characters of the choice that came before the next token.
    offset: usize,
}

impl CompletionAnswer {
    /// For choices that begin with these texts, or with nothing.
    pub fn new(
        heading: Heading,
        echoes: Vec<Option<String>>,
        logprobs: bool,
        stream_usage: bool,
    ) -> Self {
        let choices = echoes.into_iter().map(|echo| {
            let offset = echo.as_ref().map_or(0, |text| text.chars().count());
            Choice { echo, offset }
        });
        Self { heading, choices: choices.collect(), logprobs, stream_usage }
    }

    fn choice(
        &mut self,
        index: usize,
        text: &str,
        tokens: &[TokenText],
        finish_reason: Option<&str>,
    ) -> Value {
        let logprobs = self.logprobs(index, tokens);
        let echo = self.choices[index].echo.take().unwrap_or_default();
        json!({
            "text": echo + text,
            "index": index,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        })
    }

    fn logprobs(&mut self, index: usize, tokens: &[TokenText]) -> Value {
        if !self.logprobs {
            return Value::Null;
        }
        let mut lists = TextLogprobs::default();
        let offset = &mut self.choices[index].offset;
        *offset = lists.add(tokens, *offset);
        lists.into_json()
    }

    fn chunk(&self, choices: Value) -> Value {
        let mut chunk = self.heading.with(OBJECT, choices);
        if self.stream_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}

impl Answer for CompletionAnswer {
    fn frames(&mut self, index: usize, event: TextEvent) -> Vec<Frame> {
        let choice = match event {
            TextEvent::Content(delta) | TextEvent::Reasoning(delta) => {
                self.choice(index, &delta.text, &delta.tokens, None)
            }
            TextEvent::Done(done) => self.choice(index, "", &[], Some(done.finish.reason())),
            TextEvent::Prefill { .. }
            | TextEvent::Prompt { .. }
            | TextEvent::Call(_)
            | TextEvent::Failed(_) => {
                return Vec::new();
            }
        };
        vec![Frame::Data(self.chunk(json!([choice])))]
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
        let choices = choices.into_iter().enumerate();
        let choices: Value = choices
            .map(|(index, one)| {
                self.choice(index, &one.content(), &one.tokens, one.finish_reason())
            })
            .collect();
        let mut answer = self.heading.with(OBJECT, choices);
        answer["usage"] = answer::usage(usage);
        answer
    }
}
