//! The events that a request produces.

use crate::cache_report::CacheReport;
use crate::error::ApiError;
use crate::receipt::Receipt;
use crate::usage_counter::Usage;
use engine::Timings;

/// An event of a request. In order: `Admitted`, any number of `Prompt` and `Prefill`, then text and
/// calls, then exactly one of `Done` and `Failed`. A request that fails early has only `Failed`.
#[derive(Clone, Debug, PartialEq)]
pub enum TextEvent {
    /// The computation begins, after the prompt was looked up in the cache.
    Admitted(CacheReport),
    /// `done` of `total` prompt tokens are there, if the request asks for its progress. The first
    /// of these events comes when the request is admitted, and the last when all tokens are there.
    Prefill {
        /// Prompt tokens found in the cache.
        cached: usize,
        /// Prompt tokens found in the cache or computed so far.
        done: usize,
        /// Prompt tokens in all.
        total: usize,
    },
    /// Consecutive tokens of the prompt with their log probabilities, if the request sets
    /// `prompt_logprobs`.
    Prompt {
        /// Index in the prompt of the first of `tokens`; the first event has 1, because the first
        /// prompt token has no probability, or that of `prompt_logprobs_from`.
        first: usize,
        /// The tokens.
        tokens: Vec<TokenText>,
    },
    /// Text of the reasoning.
    Reasoning(Delta),
    /// Text of the answer.
    Content(Delta),
    /// Part of a tool call.
    Call(CallEvent),
    /// The answer is complete.
    Done(Done),
    /// The request failed.
    Failed(ApiError),
}

/// An event of a tool call. Calls are numbered from 0; one ends before the next starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEvent {
    /// The model calls a tool.
    Start {
        /// Number of the call.
        index: usize,
        /// Id of the call, unique among all answers.
        id: String,
        /// Name of the tool.
        name: String,
    },
    /// A piece of the JSON text of the arguments; the pieces of a call make one object, or the
    /// beginning of one if the limit of tokens ends the answer within the call, which then has no
    /// `End`.
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
    /// The call is malformed and must not be executed; its text follows as content.
    Broken {
        /// Number of the call.
        index: usize,
    },
}

/// The end of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// What ended the answer.
    pub finish: Finish,
    /// Token counts.
    pub usage: Usage,
    /// Times.
    pub timings: Timings,
    /// The receipt of the answer, if the request asks for one.
    pub receipt: Option<Box<Receipt>>,
}

/// What ended an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model chose this stop id.
    StopId(u32),
    /// The text reached this stop string.
    StopString(String),
    /// The answer ended in tool calls.
    ToolCalls,
    /// The limit of tokens was reached, or the context is full.
    Length,
    /// The grammar allows nothing more.
    Complete,
}

impl Finish {
    /// The `finish_reason` of OpenAI's API.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::StopId(_) | Self::StopString(_) | Self::Complete => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
        }
    }
}

/// A piece of text, with its tokens if the request sets `logprobs`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// The text; may be empty for tokens without text.
    pub text: String,
    /// The tokens of the piece.
    pub tokens: Vec<TokenText>,
}

/// A token with its log probability.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenText {
    /// Token id.
    pub id: u32,
    /// The bytes as text; invalid UTF-8 is shown as U+FFFD.
    pub text: String,
    /// The bytes of the token.
    pub bytes: Vec<u8>,
    /// Natural log probability.
    pub logprob: f32,
    /// The most likely tokens at this position, best first.
    pub top: Vec<TopToken>,
}

/// An alternative token with its log probability.
#[derive(Clone, Debug, PartialEq)]
pub struct TopToken {
    /// Token id.
    pub id: u32,
    /// The bytes as text; invalid UTF-8 is shown as U+FFFD.
    pub text: String,
    /// The bytes of the token.
    pub bytes: Vec<u8>,
    /// Natural log probability.
    pub logprob: f32,
}
