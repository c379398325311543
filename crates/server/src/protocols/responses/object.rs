//! The response object.

use crate::http::app::unix_now;
use crate::protocols::responses::items::OutputItem;
use crate::protocols::responses::warnings::Warnings;
use api::Usage;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// An answer with all that was asked for.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Response {
    pub id: String,
    pub object: ResponseKind,
    pub created_at: u64,
    pub status: Status,
    pub background: bool,
    pub completed_at: Option<u64>,
    pub error: Option<ResponseFailure>,
    pub incomplete_details: Option<Incomplete>,
    pub instructions: Option<String>,
    pub max_output_tokens: Option<usize>,
    pub max_tool_calls: Option<usize>,
    pub model: String,
    pub output: Vec<OutputItem>,
    pub parallel_tool_calls: bool,
    pub previous_response_id: Option<String>,
    pub prompt_cache_key: Option<String>,
    #[schema(value_type = Object)]
    pub reasoning: Value,
    pub safety_identifier: Option<String>,
    pub service_tier: String,
    pub store: bool,
    pub temperature: f32,
    #[schema(value_type = Object)]
    pub text: Value,
    #[schema(value_type = Object)]
    pub tool_choice: Value,
    #[schema(value_type = Vec<Object>)]
    pub tools: Vec<Value>,
    pub top_logprobs: usize,
    pub top_p: f32,
    pub truncation: String,
    pub usage: Option<Tokens>,
    pub user: Option<String>,
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    /// What was asked for and left out; an extension.
    #[serde(skip_serializing_if = "Warnings::is_empty")]
    pub warnings: Warnings,
}

/// What kind of object it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Kind)]
pub(crate) enum ResponseKind {
    #[serde(rename = "response")]
    Response,
}

/// How far a response has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Queued,
    InProgress,
    Completed,
    Incomplete,
    Failed,
    Cancelled,
}

/// Why a response failed.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Failure)]
pub(crate) struct ResponseFailure {
    pub code: String,
    pub message: String,
}

/// Why a response is not complete.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct Incomplete {
    pub reason: Reason,
}

/// What cut a response short.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reason {
    MaxOutputTokens,
}

/// Token counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Tokens {
    pub input_tokens: usize,
    pub input_tokens_details: InputDetails,
    pub output_tokens: usize,
    pub output_tokens_details: OutputDetails,
    pub total_tokens: usize,
}

/// Where the tokens of the prompt came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct InputDetails {
    pub cached_tokens: usize,
    /// Those that were computed, and are in the cache now.
    pub cache_write_tokens: usize,
}

/// What the tokens of the answer were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct OutputDetails {
    pub reasoning_tokens: usize,
}

impl From<&Usage> for Tokens {
    fn from(usage: &Usage) -> Self {
        Self {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputDetails {
                cached_tokens: usage.cached_tokens,
                cache_write_tokens: usage.prompt_tokens.saturating_sub(usage.cached_tokens),
            },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputDetails { reasoning_tokens: usage.reasoning_tokens },
            total_tokens: usage.prompt_tokens + usage.completion_tokens,
        }
    }
}

impl Response {
    /// The JSON of it.
    pub fn json(&self) -> Value {
        // Members are plain data with string keys, for which this cannot fail.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Ends it with `status`.
    pub fn end(&mut self, status: Status) {
        self.status = status;
        self.completed_at = (status == Status::Completed).then(unix_now);
        if status == Status::Incomplete {
            self.incomplete_details = Some(Incomplete { reason: Reason::MaxOutputTokens });
        }
    }
}
