//! What Anthropic's API answers: messages, and the events of a stream.

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
    MessageDelta { delta: Ending, usage: MessageUsage },
    /// The message is complete.
    MessageStop,
}

impl StreamEvent {
    /// The event's name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::Ping => "ping",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
        }
    }
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
