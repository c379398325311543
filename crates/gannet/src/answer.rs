//! Answers, whole or streamed.

use crate::error::Error;
use api::{ApiError, CallEvent, Done, Finish, Receipt, TextEvent, TextStream, TokenText, Usage};
use engine::Timings;

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The content.
    pub text: String,
    /// The reasoning before the content, if the model marks it.
    pub reasoning: String,
    /// The tool calls. Execute them only if `finish_reason` is [`Finish::ToolCalls`].
    pub calls: Vec<ToolCall>,
    /// Every token with its log probability, if [`Sampling::logprobs`](crate::Sampling) requests
    /// them.
    pub tokens: Vec<TokenText>,
    /// The reason why the answer ended.
    pub finish_reason: Finish,
    /// Tokens of prompt and answer.
    pub usage: Usage,
    /// Times of prefill and decode.
    pub timings: Timings,
    /// The receipt, if the request asks for one.
    pub receipt: Option<Box<Receipt>>,
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolCall {
    /// Identifies the call in the rest of the conversation.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// JSON text of the object of arguments; its beginning if the limit of tokens cut the call.
    pub arguments: String,
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Delta {
    /// The text that follows the previous piece.
    pub text: String,
    /// Whether the text is reasoning.
    pub is_reasoning: bool,
    /// The tokens with their log probabilities, if they were requested.
    pub tokens: Vec<TokenText>,
}

/// Streams the pieces of one answer. Dropping the stream ends the computation.
#[derive(Debug)]
pub struct Stream {
    events: TextStream,
    so_far: Gathered,
}

impl Stream {
    pub(crate) fn new(events: TextStream) -> Self {
        Self { events, so_far: Gathered::default() }
    }

    /// Waits for the end and returns the whole answer, including the pieces already taken.
    ///
    /// # Errors
    /// If the computation failed.
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

    /// Waits for the next piece; `None` after the last one, or after an error.
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

/// The parts of an answer so far.
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

    /// Adds an event, and returns it as a piece if it has text.
    fn take(&mut self, event: Option<TextEvent>) -> Option<Delta> {
        match event {
            Some(
                TextEvent::Admitted { .. } | TextEvent::Prefill { .. } | TextEvent::Prompt { .. },
            ) => {}
            Some(TextEvent::Call(event)) => self.call(event),
            Some(TextEvent::Reasoning(delta)) => return Some(self.delta(delta, true)),
            Some(TextEvent::Content(delta)) => return Some(self.delta(delta, false)),
            Some(TextEvent::Done(done)) => self.end = Some(Ok(done)),
            Some(TextEvent::Failed(error)) => self.end = Some(Err(error)),
            None => self.end = Some(Err(ApiError::Stopped)),
        }
        None
    }

    fn delta(&mut self, api::Delta { text, tokens }: api::Delta, is_reasoning: bool) -> Delta {
        let so_far = if is_reasoning { &mut self.reasoning } else { &mut self.text };
        so_far.push_str(&text);
        self.tokens.extend_from_slice(&tokens);
        Delta { text, is_reasoning, tokens }
    }

    /// Adds an event of the last call: calls follow each other.
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
        let Done { finish, usage, timings, receipt } =
            self.end.unwrap_or(Err(ApiError::Stopped))?;
        let Self { text, reasoning, calls, tokens, .. } = self;
        let finish_reason = finish;
        Ok(Answer { text, reasoning, calls, tokens, finish_reason, usage, timings, receipt })
    }
}
