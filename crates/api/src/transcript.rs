//! A conversation as the tokens that were computed: the prompt of an answer is that of the answer
//! before, what was sampled, and what the template writes after that turn
//! (docs/decisions/0013-turns-continue-from-their-tokens.md, for every turn).
//!
//! Invariant: tokens of a transcript are only added, except by [`Transcript::rewind`], and where a
//! template's text after a turn cannot be told apart from the text before it: then the messages are
//! rendered anew, which [`TranscriptAnswer::rendered_anew`] says.

use crate::answer_record::AnswerRecord;
use crate::message::Message;
use crate::options::SamplingOptions;
use crate::replay_turn::ReplayTurn;
use crate::request::{ChatRequest, RequestOptions, ToolChoice};
use crate::stream::TextStream;
use std::sync::{Arc, Mutex, PoisonError};
use text::GrammarSource;

/// A conversation with the tokens of its answers. Clones are other conversations from then on.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// The settings, the tools and the messages so far.
    pub(crate) request: ChatRequest,
    turns: Vec<AnsweredTurn>,
    /// The answer that is being made.
    open: Option<Arc<Mutex<AnswerRecord>>>,
}

/// An answer among the messages.
#[derive(Clone, Debug)]
struct AnsweredTurn {
    /// The number of its message.
    message: usize,
    turn: Arc<ReplayTurn>,
}

/// A place in a transcript, between two messages: the number of messages before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TranscriptMark(pub usize);

/// The tokens of an answer, for a log from which the transcript is made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnTokens {
    /// The number of the answer's message.
    pub message: usize,
    /// Whether the prompt continues the tokens of the answer before.
    pub continues: bool,
    /// The prompt after those tokens, or all of it.
    pub prompt: Vec<u32>,
    /// The sampled tokens, without a stop id.
    pub sampled: Vec<u32>,
}

/// How one answer is made.
#[derive(Clone, Debug, Default)]
pub struct AnswerOptions {
    /// Sampling; what is left open is that of the transcript's request.
    pub sampling: SamplingOptions,
    /// Whether the answer calls tools. With [`ToolChoice::None`] the tools stay in the prompt.
    pub tool_choice: ToolChoice,
    /// The grammar of the answer after its reasoning.
    pub grammar: Option<GrammarSource>,
    /// Most tokens of reasoning, if not those of the transcript's request.
    pub reasoning_budget: Option<usize>,
    /// What does not change the answer.
    pub request: RequestOptions,
}

/// An answer that is being made.
#[derive(Debug)]
pub struct TranscriptAnswer {
    /// Its events. What has come is the answer, also if the stream is dropped before its end.
    pub stream: TextStream,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of earlier turns that are computed anew, where the template's text after the last
    /// answer depends on what follows that answer.
    pub rendered_anew: Option<usize>,
    /// Sentences about parts of schemas that are not enforced.
    pub warnings: Vec<String>,
}

/// The end of an answer in its transcript.
#[derive(Clone, Debug, PartialEq)]
pub struct SettledAnswer {
    /// The answer's message, with its complete calls.
    pub message: Message,
    /// Its tokens; `None` if text that it did not say is part of it.
    pub tokens: Option<TurnTokens>,
    /// Sampled tokens of an unfinished call, or of text that was not decided, that are left out.
    pub dropped: usize,
}

impl Transcript {
    /// The conversation of `request`, of which nothing is computed.
    pub(crate) fn new(request: ChatRequest) -> Self {
        Self { request, turns: Vec::new(), open: None }
    }

    /// The same conversation with the tokens of its answers, as [`turns`](Self::turns) gave them.
    pub(crate) fn with_turns(request: ChatRequest, turns: Vec<TurnTokens>) -> Self {
        let mut transcript = Self::new(request);
        for TurnTokens { message, continues, prompt, sampled } in turns {
            let parent = transcript.turns.last().filter(|_| continues).map(|it| it.turn.clone());
            let turn = ReplayTurn::of_tokens(parent, prompt, sampled);
            transcript.turns.push(AnsweredTurn::new(message, turn));
        }
        transcript
    }

    /// The messages so far; an answer is among them once it is settled.
    pub fn messages(&self) -> &[Message] {
        &self.request.messages
    }

    /// The request of a conversation with these messages and the settings and tools of this one.
    pub fn request_of(&self, messages: Vec<Message>) -> ChatRequest {
        ChatRequest { messages, ..self.request.clone() }
    }

    /// The tokens up to the end of the last answer.
    pub fn tokens(&self) -> Vec<u32> {
        self.turns.last().map(|it| it.turn.tokens()).unwrap_or_default()
    }

    /// The tokens of all answers, in order.
    pub fn turns(&self) -> impl Iterator<Item = TurnTokens> + '_ {
        self.turns.iter().map(AnsweredTurn::tokens)
    }

    /// Adds messages after the last answer, which is settled.
    pub fn extend(&mut self, messages: impl IntoIterator<Item = Message>) {
        self.settle();
        self.request.messages.extend(messages);
    }

    /// Ends the answer that is being made, and adds what came of it; `None` if nothing did, or
    /// there is no such answer.
    pub fn settle(&mut self) -> Option<SettledAnswer> {
        let open = self.open.take()?;
        let mut record = open.lock().unwrap_or_else(PoisonError::into_inner);
        if record.sampled.is_empty() {
            return None;
        }
        let mut message = std::mem::take(&mut record.message);
        if message.calls.is_empty() {
            // Templates expect a text where there are no calls.
            message.push_text("");
        }
        let mut sampled = std::mem::take(&mut record.sampled);
        let dropped = sampled.len() - record.settled.min(sampled.len());
        sampled.truncate(record.settled);
        let prompt = std::mem::take(&mut record.prompt);
        let parent = record.origin.parent.clone();
        let number = self.request.messages.len();
        let turn = AnsweredTurn::new(number, ReplayTurn::of_tokens(parent, prompt, sampled));
        let tokens = (!record.is_foreign).then(|| turn.tokens());
        if !record.is_foreign {
            self.turns.push(turn);
        }
        self.request.messages.push(message.clone());
        Some(SettledAnswer { message, tokens, dropped })
    }

    /// The place after the last message.
    pub fn mark(&self) -> TranscriptMark {
        TranscriptMark(self.request.messages.len())
    }

    /// Removes all that was added after `mark`, and an answer that is being made.
    pub fn rewind(&mut self, mark: TranscriptMark) {
        self.open = None;
        self.request.messages.truncate(mark.0);
        self.turns.retain(|it| it.message < mark.0);
    }

    /// The last answer whose tokens are known, if no later message is an answer.
    pub(crate) fn last(&self) -> Option<&Arc<ReplayTurn>> {
        let AnsweredTurn { message, turn } = self.turns.last()?;
        let later = self.request.messages.get(message + 1..).unwrap_or_default();
        (!later.iter().any(|it| it.role == "assistant".into())).then_some(turn)
    }

    /// Begins an answer with this record.
    pub(crate) fn open(&mut self, record: AnswerRecord) -> Arc<Mutex<AnswerRecord>> {
        Arc::clone(self.open.insert(Arc::new(Mutex::new(record))))
    }
}

impl AnsweredTurn {
    fn new(message: usize, turn: ReplayTurn) -> Self {
        Self { message, turn: Arc::new(turn) }
    }

    fn tokens(&self) -> TurnTokens {
        let ReplayTurn { parent, prompt, sampled, .. } = &*self.turn;
        let (prompt, sampled) = (prompt.clone(), sampled.clone());
        TurnTokens { message: self.message, continues: parent.is_some(), prompt, sampled }
    }
}
