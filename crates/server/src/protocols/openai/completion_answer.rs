//! The answer of `POST /v1/completions`, whole and as chunks.

use crate::generate::answer::{Answer, Collected};
use crate::generate::logprobs::TextLogprobs;
use crate::http::error::HttpError;
use crate::http::sse::Frame;
use crate::protocols::openai::answer::{self, Heading};
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

/// A prompt that its answers begin with.
#[derive(Clone, Debug)]
pub(crate) struct Echo {
    pub text: String,
    /// Its first token, of which no event tells.
    pub first: Vec<u8>,
}

/// Where one choice stands.
#[derive(Clone, Debug)]
struct Choice {
    /// The prompt, until it was sent.
    echo: Option<Echo>,
    /// The prompt's tokens but the first, until they were sent.
    prompt: Vec<TokenText>,
    /// Characters of the choice that came before the next token.
    offset: usize,
}

impl CompletionAnswer {
    /// For choices that begin with these texts, or with nothing.
    pub fn new(
        heading: Heading,
        echoes: Vec<Option<Echo>>,
        logprobs: bool,
        stream_usage: bool,
    ) -> Self {
        let choices = echoes.into_iter().map(|echo| {
            let offset = echo.as_ref().map_or(0, |echo| echo.text.chars().count());
            Choice { echo, prompt: Vec::new(), offset }
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
        let choice = &mut self.choices[index];
        let (echo, prompt) = (choice.echo.take(), std::mem::take(&mut choice.prompt));
        let logprobs = self.logprobs.then(|| {
            let mut lists = TextLogprobs::default();
            if let Some(echo) = &echo {
                lists.add_prompt(&echo.first, &prompt, &echo.text);
            }
            choice.offset = lists.add(tokens, choice.offset);
            lists
        });
        let text = echo.map(|echo| echo.text).unwrap_or_default() + text;
        TextChoice { text, index, logprobs, finish_reason }
    }
}

impl Answer for CompletionAnswer {
    fn frames(&mut self, index: usize, event: TextEvent) -> Vec<Frame> {
        let choice = match event {
            TextEvent::Content(delta) | TextEvent::Reasoning(delta) => {
                self.choice(index, &delta.text, &delta.tokens, None)
            }
            TextEvent::Done(done) => self.choice(index, "", &[], Some(done.finish.reason())),
            TextEvent::Prompt { tokens, .. } => {
                self.choices[index].prompt.extend(tokens);
                return Vec::new();
            }
            TextEvent::Prefill { .. } | TextEvent::Call(_) | TextEvent::Failed(_) => {
                return Vec::new();
            }
        };
        vec![self.heading.chunk(OBJECT, vec![choice], self.stream_usage)]
    }

    fn close(&mut self, usage: &Usage) -> Vec<Frame> {
        let last = || self.heading.with(OBJECT, Vec::<TextChoice>::new()).used(usage);
        answer::close(self.stream_usage.then(last))
    }

    fn broken(&mut self, error: &HttpError) -> Vec<Frame> {
        answer::broken(error)
    }

    fn whole(&mut self, choices: Vec<Collected>, usage: &Usage) -> Value {
        let choices = choices.into_iter().enumerate();
        let choices = choices
            .map(|(index, one)| {
                self.choices[index].prompt = one.prompt.clone();
                self.choice(index, &one.content(), &one.tokens, one.finish_reason())
            })
            .collect();
        json!(self.heading.with(OBJECT, choices).used(usage))
    }
}
