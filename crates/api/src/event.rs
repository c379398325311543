//! The events of one answer.

use crate::error::ApiError;
use crate::usage_counter::{Timings, Usage};

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

/// A piece of text, and the tokens it came from if their log probabilities were asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// The text; empty only where tokens have no text of their own.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<TokenText>,
}

/// A token with its log probability.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenText {
    /// Its id.
    pub id: u32,
    /// Its bytes as text; what is not UTF-8 alone is shown as U+FFFD.
    pub text: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Natural log probability.
    pub logprob: f32,
    /// The most likely tokens in its place, best first.
    pub top: Vec<TopToken>,
}

/// A token that could have been chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct TopToken {
    /// Its id.
    pub id: u32,
    /// Its bytes as text; what is not UTF-8 alone is shown as U+FFFD.
    pub text: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Natural log probability.
    pub logprob: f32,
}
