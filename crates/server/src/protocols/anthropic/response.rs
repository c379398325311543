//! What Anthropic's API answers: messages, the events of a stream, and errors.

use crate::http::error::HttpError;
use crate::http::refusals::ErrorObject;
use crate::protocols::warnings::Warnings;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = AnthropicMessage)]
pub(crate) struct MessageResponse {
    pub id: String,
    #[serde(rename = "type")]
    #[schema(pattern = "^message$")]
    pub kind: &'static str,
    #[schema(pattern = "^assistant$")]
    pub role: &'static str,
    pub model: String,
    pub content: Vec<ContentBlock>,
    pub stop_reason: Option<StopReason>,
    /// The stop sequence that ended it.
    pub stop_sequence: Option<String>,
    pub usage: MessageUsage,
    /// What was removed from the conversation, where the request says what may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_management: Option<ContextManagement>,
    /// What was asked for and left out; an extension.
    #[serde(skip_serializing_if = "Warnings::is_empty")]
    pub warnings: Warnings,
}

/// What was removed from a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AnthropicAppliedEdits)]
pub(crate) struct ContextManagement {
    pub applied_edits: Vec<AppliedEdit>,
}

impl ContextManagement {
    /// Tokens that were removed.
    pub fn cleared_input_tokens(&self) -> usize {
        let tokens = |edit: &AppliedEdit| match edit {
            AppliedEdit::ToolUses { cleared_input_tokens, .. }
            | AppliedEdit::Thinking { cleared_input_tokens, .. } => *cleared_input_tokens,
        };
        self.applied_edits.iter().map(tokens).sum()
    }
}

/// One removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "type")]
#[schema(as = AnthropicAppliedEdit)]
pub(crate) enum AppliedEdit {
    #[serde(rename = "clear_tool_uses_20250919")]
    ToolUses { cleared_input_tokens: usize, cleared_tool_uses: usize },
    #[serde(rename = "clear_thinking_20251015")]
    Thinking { cleared_input_tokens: usize, cleared_thinking_turns: usize },
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = AnthropicContentBlock)]
pub(crate) enum ContentBlock {
    Thinking {
        thinking: String,
        signature: String,
    },
    Text {
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
        #[schema(value_type = Object)]
        input: Map<String, Value>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AnthropicStopReason)]
pub(crate) enum StopReason {
    EndTurn,
    MaxTokens,
    StopSequence,
    ToolUse,
}

/// Token counts; the first three add up to the prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AnthropicUsage)]
pub(crate) struct MessageUsage {
    /// Tokens of the prompt that are neither of the next two.
    pub input_tokens: usize,
    /// Tokens that were computed for a client that marks what it wants cached.
    pub cache_creation_input_tokens: usize,
    /// Tokens found in the cache.
    pub cache_read_input_tokens: usize,
    pub output_tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens_details: Option<OutputTokensDetails>,
    /// Always `standard`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AnthropicOutputTokensDetails)]
pub(crate) struct OutputTokensDetails {
    /// Tokens of reasoning.
    pub thinking_tokens: usize,
}

/// The tokens of a prompt.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AnthropicTokenCount)]
pub(crate) struct TokenCount {
    pub input_tokens: usize,
    /// Where the request says what may be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_management: Option<OriginalCount>,
    /// What was asked for and left out; an extension.
    #[serde(skip_serializing_if = "Warnings::is_empty")]
    pub warnings: Warnings,
}

/// The tokens of a conversation of which nothing was removed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AnthropicOriginalCount)]
pub(crate) struct OriginalCount {
    pub original_input_tokens: usize,
}

/// An event of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = AnthropicStreamEvent)]
pub(crate) enum StreamEvent {
    /// The message, with nothing in it yet.
    MessageStart { message: MessageResponse },
    /// Nothing; it keeps the stream open.
    Ping,
    /// A block without its content.
    ContentBlockStart { index: usize, content_block: ContentBlock },
    /// More of a block.
    ContentBlockDelta { index: usize, delta: BlockDelta },
    /// The block is complete.
    ContentBlockStop { index: usize },
    /// Why the message ends, and all of its tokens.
    MessageDelta {
        delta: Ending,
        usage: MessageUsage,
        #[serde(skip_serializing_if = "Option::is_none")]
        context_management: Option<ContextManagement>,
    },
    /// The message is complete.
    MessageStop,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type")]
#[schema(as = AnthropicBlockDelta)]
pub(crate) enum BlockDelta {
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AnthropicEnding)]
pub(crate) struct Ending {
    pub stop_reason: Option<StopReason>,
    pub stop_sequence: Option<String>,
}

/// What went wrong.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AnthropicError)]
pub(crate) struct ErrorBody {
    #[serde(rename = "type")]
    #[schema(pattern = "^error$")]
    kind: &'static str,
    error: ErrorDetail,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AnthropicErrorDetail)]
struct ErrorDetail {
    /// `invalid_request_error`, `authentication_error`, `permission_error`, `not_found_error`,
    /// `request_too_large`, `rate_limit_error`, `timeout_error`, `overloaded_error` or `api_error`.
    #[serde(rename = "type")]
    kind: &'static str,
    message: String,
    /// Tokens of a prompt that the context does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    n_prompt_tokens: Option<usize>,
    /// Tokens that the context holds, answer included.
    #[serde(skip_serializing_if = "Option::is_none")]
    n_ctx: Option<usize>,
}

impl ErrorObject for ErrorBody {
    const STATUSES: &'static [(&'static str, &'static str)] = &[
        ("400", ""),
        ("401", ""),
        ("404", ""),
        ("413", ""),
        ("429", ""),
        ("500", ""),
        ("503", ""),
    ];
}

impl ErrorBody {
    /// The object of `error`. Where a prompt is too long, agents look for the words of the message
    /// to know that they must shorten their history, and for the two numbers in them; a prompt must
    /// leave space for one token of the answer.
    pub fn of(error: &HttpError) -> Self {
        let (kind, message) = (kind(error.status.as_u16()), error.message.clone());
        let mut detail = ErrorDetail { kind, message, n_prompt_tokens: None, n_ctx: None };
        if let Some([prompt, context]) = error.lengths {
            let most = context.saturating_sub(1);
            detail.message = format!("prompt is too long: {prompt} tokens > {most} maximum");
            (detail.n_prompt_tokens, detail.n_ctx) = (Some(prompt), Some(context));
        }
        Self { kind: "error", error: detail }
    }
}

fn kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        504 => "timeout_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::ApiError;
    use serde_json::json;

    #[test]
    fn status_names_the_error() {
        let kinds = [400, 401, 404, 405, 413, 429, 500, 503, 504].map(kind);
        let expected = [
            "invalid_request_error",
            "authentication_error",
            "not_found_error",
            "invalid_request_error",
            "request_too_large",
            "rate_limit_error",
            "api_error",
            "overloaded_error",
            "timeout_error",
        ];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn overflow_tells_both_sizes_in_words_and_numbers() {
        let expected = json!({"type": "error", "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 9 tokens > 7 maximum",
            "n_prompt_tokens": 9,
            "n_ctx": 8,
        }});
        let error = ApiError::ContextLength { prompt_tokens: 9, context_length: 8 };
        assert_eq!(json!(ErrorBody::of(&HttpError::of(error, "messages"))), expected);
    }
}
