//! The answer of `POST /v1/completions`, whole and as chunks.

use crate::answer::{Answer, Collected, Frame};
use crate::fault::Fault;
use crate::openai::answer::{self, Heading};
use crate::openai::logprobs::TextLogprobs;
use api::{TextEvent, TokenText, Usage};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

const OBJECT: &str = "text_completion";

/// A continuation, or a step of one.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CompletionChoice)]
pub(crate) struct TextChoice {
    text: String,
    index: usize,
    logprobs: Option<TextLogprobs>,
    /// `stop` or `length`.
    finish_reason: Option<&'static str>,
}

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
        finish_reason: Option<&'static str>,
    ) -> TextChoice {
        let logprobs = self.logprobs(index, tokens);
        let echo = self.choices[index].echo.take().unwrap_or_default();
        TextChoice { text: echo + text, index, logprobs, finish_reason }
    }

    fn logprobs(&mut self, index: usize, tokens: &[TokenText]) -> Option<TextLogprobs> {
        if !self.logprobs {
            return None;
        }
        let mut lists = TextLogprobs::default();
        let offset = &mut self.choices[index].offset;
        *offset = lists.add(tokens, *offset);
        Some(lists)
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
        vec![self.heading.chunk(OBJECT, vec![choice], self.stream_usage)]
    }

    fn close(&mut self, usage: &Usage) -> Vec<Frame> {
        let last = || self.heading.with(OBJECT, Vec::<TextChoice>::new()).used(usage);
        answer::close(self.stream_usage.then(last))
    }

    fn broken(&mut self, fault: &Fault) -> Vec<Frame> {
        answer::broken(fault)
    }

    fn whole(&mut self, choices: Vec<Collected>, usage: &Usage) -> Value {
        let choices = choices.into_iter().enumerate();
        let choices = choices
            .map(|(index, one)| {
                self.choice(index, &one.content(), &one.tokens, one.finish_reason())
            })
            .collect();
        json!(self.heading.with(OBJECT, choices).used(usage))
    }
}
