//! The answer to one request, as events.

use crate::assemble::{Assembler, Delta, TextPiece, TokenText};
use crate::error::ApiError;
use crate::replay::{ReplayMemory, ReplayTurn, Weight};
use crate::request::Origin;
use crate::usage_counter::{Timings, Usage, UsageCounter};
use engine::{Event, Finished, Generation, Outcome, TokenLogprobs};
use std::collections::VecDeque;
use std::sync::Arc;

/// An event of a request, in order: any number of `Prompt` and `Prefill`, then text, then exactly
/// one of `Done` and `Failed`.
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
    /// Part of a tool call.
    Call(CallEvent),
    /// The answer is complete.
    Done(Done),
    /// The answer broke off.
    Failed(ApiError),
}

/// What happened to a tool call. Calls are numbered from 0; one ends before the next starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEvent {
    /// The model calls a tool.
    Start {
        /// Number of the call.
        index: usize,
        /// Name of this call, unique among all answers.
        id: String,
        /// Name of the tool.
        name: String,
    },
    /// More of the JSON text of its arguments; all of a call's pieces make one object.
    Arguments {
        /// Number of the call.
        index: usize,
        /// The piece.
        delta: String,
    },
    /// The call is complete.
    End {
        /// Number of the call.
        index: usize,
    },
    /// The call broke and must not be executed; its text follows as content.
    Broken {
        /// Number of the call.
        index: usize,
    },
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
    /// Tools are to be called.
    ToolCalls,
    /// The limit of tokens was reached, or the context is full.
    Length,
    /// The grammar allows nothing more.
    Complete,
}

impl Finish {
    /// The name that OpenAI's API has for it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::StopId(_) | Self::StopString(_) | Self::Complete => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
        }
    }
}

/// The events of one request. Dropping it cancels the request, and only that.
#[derive(Debug)]
pub struct TextStream {
    generation: Option<Generation>,
    assembler: Assembler,
    meter: UsageCounter,
    ready: VecDeque<TextEvent>,
    record: Option<TurnRecorder>,
}

/// What is remembered of an answer that ends in calls.
#[derive(Debug)]
pub(crate) struct TurnRecorder {
    pub memory: Arc<ReplayMemory>,
    pub origin: Origin,
    /// The prompt behind the tokens that its parent has.
    pub prompt: Vec<u32>,
    pub sampled: Vec<u32>,
}

impl TextStream {
    pub(crate) fn new(
        generation: Generation,
        assembler: Assembler,
        prompt_tokens: usize,
        record: Option<TurnRecorder>,
    ) -> Self {
        let meter = UsageCounter::new(prompt_tokens);
        let generation = Some(generation);
        Self { generation, assembler, meter, ready: VecDeque::new(), record }
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
            // Embeddings are not requested as text.
            Some(Event::Embedding(_)) => {}
            Some(Event::Token { id, logprobs }) => self.token(id, logprobs),
            Some(Event::Finished(finished)) => self.finished(finished),
            None => self.fail(ApiError::Stopped),
        }
    }

    fn token(&mut self, id: u32, logprobs: Option<TokenLogprobs>) {
        if let Some(record) = &mut self.record {
            record.sampled.push(id);
        }
        let step = self.assembler.push(id, logprobs);
        self.meter.token();
        self.emit(step.pieces);
        if let Some(stop) = step.stop {
            self.cut(Finish::StopString(stop));
        } else if step.complete {
            let last = self.assembler.finish(false);
            self.emit(last.pieces);
            self.cut(self.called().unwrap_or(Finish::StopId(id)));
        }
    }

    /// Ends the answer before the model does.
    fn cut(&mut self, finish: Finish) {
        self.meter.reasoning(self.assembler.reasoning_tokens());
        let (usage, timings) = self.meter.cut();
        self.done(Done { finish, usage, timings });
    }

    fn finished(&mut self, finished: Finished) {
        if let Some(error) = ApiError::of(&finished.outcome) {
            return self.fail(error);
        }
        let last = self.assembler.finish(finished.outcome == Outcome::Length);
        self.emit(last.pieces);
        self.meter.reasoning(self.assembler.reasoning_tokens());
        let (usage, timings) = self.meter.finished(&finished);
        let finish = match (last.stop, finished.outcome) {
            (Some(stop), _) => Finish::StopString(stop),
            (None, Outcome::StopId(id)) => self.called().unwrap_or(Finish::StopId(id)),
            (None, Outcome::Length) => Finish::Length,
            (None, _) => self.called().unwrap_or(Finish::Complete),
        };
        self.done(Done { finish, usage, timings });
    }

    /// The end of an answer that calls tools.
    fn called(&self) -> Option<Finish> {
        self.assembler.calls().map(|_| Finish::ToolCalls)
    }

    fn done(&mut self, done: Done) {
        let record = self.record.take().filter(|_| !self.assembler.is_cut());
        if let (Finish::ToolCalls, Some(record)) = (&done.finish, record) {
            self.remember(record);
        }
        self.end(TextEvent::Done(done));
    }

    /// Before the client hears of the end, so that its next request finds the turn.
    fn remember(&self, record: TurnRecorder) {
        let Some((calls, content)) = self.assembler.calls() else { return };
        let TurnRecorder { memory, origin, prompt, sampled } = record;
        let (calls, content) = (calls.to_vec(), content.to_owned());
        let Origin { before, parent, .. } = origin;
        let weight = Weight::default();
        memory.remember(ReplayTurn { calls, content, before, parent, prompt, sampled, weight });
    }

    fn fail(&mut self, error: ApiError) {
        self.end(TextEvent::Failed(error));
    }

    fn emit(&mut self, pieces: Vec<TextPiece>) {
        self.ready.extend(pieces.into_iter().map(|piece| match piece {
            TextPiece::Reasoning(delta) => TextEvent::Reasoning(delta),
            TextPiece::Content(delta) => TextEvent::Content(delta),
            TextPiece::Call(event) => TextEvent::Call(event),
        }));
    }

    fn end(&mut self, event: TextEvent) {
        self.ready.push_back(event);
        self.generation = None;
    }
}
