//! Errors of requests.

use engine::{Field, Outcome, SubmitError};
use text::TextError;

/// Why a request was rejected or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The prompt fills the context. The message is llama.cpp's, by which agents recognise the
    /// error and shorten the conversation.
    #[error("{}", over_context(.prompt_tokens, .context_length))]
    ContextLength {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Context length in tokens, answer included.
        context_length: usize,
    },
    /// The prompt fills the context, and was tokenized no further than that shows.
    #[error(
        "a prompt of at least {least_tokens} tokens with room for an answer exceeds the available \
         context size of {context_length} tokens"
    )]
    FarBeyondContext {
        /// The least number of tokens that the prompt has.
        least_tokens: usize,
        /// Context length in tokens, answer included.
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
        /// The reason.
        message: String,
    },
    /// The queue of requests is full.
    #[error("too many requests are waiting ({0})")]
    QueueFull(usize),
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
    /// The prompt cannot be tokenized.
    #[error("tokenizer: {0}")]
    Text(String),
    /// The request exceeded its time limit.
    #[error("the request took longer than {} s", .0.as_secs_f64())]
    TimedOut(std::time::Duration),
    /// The engine failed.
    #[error("{0}")]
    Engine(String),
}

impl ApiError {
    /// Whether the prompt fills the context.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::ContextLength { .. } | Self::FarBeyondContext { .. })
    }
}

/// The message of a prompt that is too long.
fn over_context(prompt_tokens: &usize, context_length: &usize) -> String {
    let (prompt_tokens, context_length) = (*prompt_tokens, *context_length);
    SubmitError::ContextLength { prompt_tokens, context_length }.to_string()
}

impl ApiError {
    /// The parameter `name` of a request is invalid.
    pub fn invalid(name: &'static str, message: impl Into<String>) -> Self {
        Self::Invalid { field: Field::Parameter(name), message: message.into() }
    }

    /// The error of a request that ended with `outcome`; `None` if the answer is complete.
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

/// The error of a text that cannot be encoded or decoded.
pub(crate) fn text_error(error: TextError) -> ApiError {
    ApiError::Text(error.to_string())
}

/// The error of a template.
pub(crate) fn template_error(error: TextError) -> ApiError {
    match error {
        TextError::Template(message) => ApiError::Template(message),
        other => ApiError::Template(other.to_string()),
    }
}
