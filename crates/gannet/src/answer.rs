//! Answers: whole, or piece by piece.

use crate::Error;
use api::{ApiError, CallEvent, Done, Finish, TextEvent, TextStream, Timings, TokenText, Usage};

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The text proper.
    pub text: String,
    /// What the model thought before it answered, if it marks its thoughts.
    pub reasoning: String,
    /// The tools it calls. They are to be executed where `finish_reason` is
    /// [`Finish::ToolCalls`] and nowhere else.
    pub calls: Vec<ToolCall>,
    /// Every token with its log probability, where [`Sampling::logprobs`](crate::Sampling) asked
    /// for them.
    pub tokens: Vec<TokenText>,
    /// What ended it.
    pub finish_reason: Finish,
    /// Tokens read and written.
    pub usage: Usage,
    /// Time taken.
    pub timings: Timings,
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Names the call in the conversation that goes on.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// JSON text of an object.
    pub arguments: String,
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Delta {
    /// The text that follows what came before.
    pub text: String,
    /// Whether it is part of what the model thinks before it answers.
    pub is_reasoning: bool,
    /// Its tokens with their log probabilities, where they were asked for.
    pub tokens: Vec<TokenText>,
}

/// The pieces of one answer as they are computed. Dropping it ends the computation.
#[derive(Debug)]
pub struct Stream {
    events: TextStream,
    so_far: Gathered,
}

impl Stream {
    pub(crate) fn new(events: TextStream) -> Self {
        Self { events, so_far: Gathered::default() }
    }

    /// Waits for the end. The answer has all of its text, with the pieces already taken.
    pub fn finish(mut self) -> Result<Answer, Error> {
        while !self.so_far.has_ended() {
            let event = self.events.next_blocking();
            self.so_far.take(event);
        }
        Ok(self.so_far.answer()?)
    }
}

impl Iterator for Stream {
    type Item = Result<Delta, Error>;

    /// The next piece; none after the last, or after the error that ended the answer.
    fn next(&mut self) -> Option<Self::Item> {
        while !self.so_far.has_ended() {
            let event = self.events.next_blocking();
            if let Some(delta) = self.so_far.take(event) {
                return Some(Ok(delta));
            }
            if let Some(Err(error)) = &self.so_far.end {
                return Some(Err(error.clone().into()));
            }
        }
        None
    }
}

/// Waits for a whole answer in async code.
pub(crate) async fn whole(mut events: TextStream) -> Result<Answer, Error> {
    let mut gathered = Gathered::default();
    while !gathered.has_ended() {
        gathered.take(events.next().await);
    }
    Ok(gathered.answer()?)
}

/// What came so far.
#[derive(Debug, Default)]
struct Gathered {
    text: String,
    reasoning: String,
    calls: Vec<ToolCall>,
    tokens: Vec<TokenText>,
    end: Option<Result<Done, ApiError>>,
}

impl Gathered {
    fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Adds what `event` brings, and gives the piece that it is.
    fn take(&mut self, event: Option<TextEvent>) -> Option<Delta> {
        let (text, delta, is_reasoning) = match event {
            Some(TextEvent::Prefill { .. } | TextEvent::Prompt { .. }) => return None,
            Some(TextEvent::Call(event)) => {
                self.call(event);
                return None;
            }
            Some(TextEvent::Reasoning(delta)) => (&mut self.reasoning, delta, true),
            Some(TextEvent::Content(delta)) => (&mut self.text, delta, false),
            Some(TextEvent::Done(done)) => {
                self.end = Some(Ok(done));
                return None;
            }
            Some(TextEvent::Failed(error)) => {
                self.end = Some(Err(error));
                return None;
            }
            None => {
                self.end = Some(Err(ApiError::Stopped));
                return None;
            }
        };
        text.push_str(&delta.text);
        self.tokens.extend_from_slice(&delta.tokens);
        Some(Delta { text: delta.text, is_reasoning, tokens: delta.tokens })
    }

    /// Calls follow each other, so that all that comes is about the last one.
    fn call(&mut self, event: CallEvent) {
        match event {
            CallEvent::Start { id, name, .. } => {
                self.calls.push(ToolCall { id, name, arguments: String::new() });
            }
            CallEvent::Arguments { delta, .. } => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments.push_str(&delta);
                }
            }
            CallEvent::Broken { .. } => _ = self.calls.pop(),
            CallEvent::End { .. } => {}
        }
    }

    fn answer(self) -> Result<Answer, ApiError> {
        let Done { finish, usage, timings } = self.end.unwrap_or(Err(ApiError::Stopped))?;
        let Self { text, reasoning, calls, tokens, .. } = self;
        Ok(Answer { text, reasoning, calls, tokens, finish_reason: finish, usage, timings })
    }
}
