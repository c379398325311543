//! Errors of requests.

use engine::{Field, Outcome, SubmitError};

/// What can go wrong between a request and its answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The prompt leaves no room for an answer. Agents know the error by these words, which are
    /// llama.cpp's, and shorten the conversation.
    #[error(
        "a prompt of {prompt_tokens} tokens with room for an answer exceeds the available context size \
         of {context_length} tokens"
    )]
    ContextLength {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens the context holds, answer included.
        context_length: usize,
    },
    /// The chat template refused the messages.
    #[error("chat template: {0}")]
    Template(String),
    /// A field of the request is invalid.
    #[error("{message}")]
    Invalid {
        /// The field.
        field: Field,
        /// What is wrong with it.
        message: String,
    },
    /// Too many requests wait already.
    #[error("too many requests are waiting ({0})")]
    QueueFull(usize),
    /// The engine has ended.
    #[error("the engine has stopped")]
    Stopped,
    /// The prompt could not be turned into tokens.
    #[error("tokenizer: {0}")]
    Text(String),
    /// It took longer than it was given.
    #[error("the request took longer than {} s", .0.as_secs_f64())]
    TimedOut(std::time::Duration),
    /// The generation broke.
    #[error("{0}")]
    Engine(String),
}

impl ApiError {
    /// The parameter `name` of a request is invalid.
    pub fn invalid(name: &'static str, message: impl Into<String>) -> Self {
        Self::Invalid { field: Field::Parameter(name), message: message.into() }
    }

    /// The error of a request that ended without an answer; `None` for one that has an answer.
    pub(crate) fn of(outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::StopId(_) | Outcome::Length | Outcome::Complete => None,
            Outcome::Failed(message) => Some(Self::Engine(message.clone())),
            Outcome::TimedOut(limit) => Some(Self::TimedOut(*limit)),
            Outcome::Cancelled => Some(Self::Stopped),
        }
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::ContextLength { prompt_tokens, context_length } => {
                Self::ContextLength { prompt_tokens, context_length }
            }
            SubmitError::Invalid { field, message } => Self::Invalid { field, message },
            SubmitError::QueueFull(waiting) => Self::QueueFull(waiting),
            SubmitError::Stopped => Self::Stopped,
        }
    }
}
