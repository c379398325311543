//! The answer to one request, as events.

use crate::assemble::{Assembler, Delta, Piece, TokenText};
use crate::error::ApiError;
use crate::meter::{Meter, Timings, Usage};
use engine::{Event, FinishReason, Finished, Generation, TokenLogprobs};
use std::collections::VecDeque;

/// What happened to a request, in order: any number of `Prompt` and `Prefill`, then text, then exactly one of
/// `Done` and `Failed`.
#[derive(Clone, Debug, PartialEq)]
pub enum TextEvent {
    /// `done` of `total` prompt tokens are computed.
    Prefill {
        /// Prompt tokens computed so far.
        done: usize,
        /// Prompt tokens in all.
        total: usize,
    },
    /// Consecutive tokens of the prompt with their log probabilities, as asked for.
    Prompt {
        /// Which of the prompt's tokens is the first of these; 1 at the beginning, as nothing comes
        /// before the first.
        first: usize,
        /// The tokens.
        tokens: Vec<TokenText>,
    },
    /// Text the model thinks to itself.
    Reasoning(Delta),
    /// Text of the answer.
    Content(Delta),
    /// The answer is complete.
    Done(Done),
    /// The answer broke off.
    Failed(ApiError),
}

/// The end of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// What ended it.
    pub finish: Finish,
    /// Tokens computed.
    pub usage: Usage,
    /// Time taken.
    pub timings: Timings,
}

/// What ended an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// This stop id was chosen.
    StopId(u32),
    /// This stop string came up.
    StopString(String),
    /// The limit of tokens was reached, or the context is full.
    Length,
}

impl Finish {
    /// The name that OpenAI's API has for it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::StopId(_) | Self::StopString(_) => "stop",
            Self::Length => "length",
        }
    }
}

/// The events of one request. Dropping it cancels the request, and only that.
#[derive(Debug)]
pub struct TextStream {
    generation: Option<Generation>,
    assembler: Assembler,
    meter: Meter,
    ready: VecDeque<TextEvent>,
}

impl TextStream {
    pub(crate) fn new(generation: Generation, assembler: Assembler, prompt_tokens: usize) -> Self {
        let meter = Meter::new(prompt_tokens);
        Self { generation: Some(generation), assembler, meter, ready: VecDeque::new() }
    }

    /// The next event, or `None` after the last one.
    pub async fn next(&mut self) -> Option<TextEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let event = self.generation.as_mut()?.next().await;
            self.take(event);
        }
    }

    /// As `next`, blocking the thread. Not to be called from async code.
    pub fn next_blocking(&mut self) -> Option<TextEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let event = self.generation.as_mut()?.next_blocking();
            self.take(event);
        }
    }

    fn take(&mut self, event: Option<Event>) {
        match event {
            Some(Event::Admitted { cached_tokens, queued_s }) => {
                self.meter.admitted(cached_tokens, queued_s);
            }
            Some(Event::Prefill { done, total }) => {
                self.ready.push_back(TextEvent::Prefill { done, total });
            }
            Some(Event::PromptLogprobs { first, tokens }) => {
                let tokens = tokens.iter().map(|(id, it)| self.assembler.token_text(*id, it));
                let tokens = tokens.collect();
                self.ready.push_back(TextEvent::Prompt { first, tokens });
            }
            // Nobody asks for a vector as text.
            Some(Event::Embedding(_)) => {}
            Some(Event::Token { id, logprobs }) => self.token(id, logprobs),
            Some(Event::Finished(finished)) => self.finished(finished),
            Some(Event::TimedOut(limit)) => self.fail(ApiError::TimedOut(limit)),
            Some(Event::Failed(message)) => self.fail(ApiError::Engine(message)),
            None => self.fail(ApiError::Stopped),
        }
    }

    fn token(&mut self, id: u32, logprobs: Option<TokenLogprobs>) {
        let step = self.assembler.push(id, logprobs);
        self.meter.token();
        self.emit(step.pieces);
        if let Some(stop) = step.stop {
            self.meter.reasoning(self.assembler.reasoning_tokens());
            let (usage, timings) = self.meter.cut();
            self.end(TextEvent::Done(Done { finish: Finish::StopString(stop), usage, timings }));
        }
    }

    fn finished(&mut self, finished: Finished) {
        let last = self.assembler.finish();
        self.emit(last.pieces);
        self.meter.reasoning(self.assembler.reasoning_tokens());
        let (usage, timings) = self.meter.finished(&finished);
        let finish = match (last.stop, finished.reason) {
            (Some(stop), _) => Finish::StopString(stop),
            (None, FinishReason::Stop(id)) => Finish::StopId(id),
            (None, FinishReason::Length) => Finish::Length,
        };
        self.end(TextEvent::Done(Done { finish, usage, timings }));
    }

    fn fail(&mut self, error: ApiError) {
        self.end(TextEvent::Failed(error));
    }

    fn emit(&mut self, pieces: Vec<Piece>) {
        self.ready.extend(pieces.into_iter().map(|piece| match piece {
            Piece::Reasoning(delta) => TextEvent::Reasoning(delta),
            Piece::Content(delta) => TextEvent::Content(delta),
        }));
    }

    fn end(&mut self, event: TextEvent) {
        self.ready.push_back(event);
        self.generation = None;
    }
}
