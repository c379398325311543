//! The response object, and the items that it consists of.

use crate::http::app::unix_now;
use crate::http::described::described;
use crate::http::wire::Object;
use crate::protocols::warnings::Warnings;
use api::Usage;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// An answer with all that was asked for.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Response {
    pub id: String,
    pub object: ResponseKind,
    pub created_at: u64,
    pub status: Status,
    pub background: bool,
    pub completed_at: Option<u64>,
    /// The conversation that the response belongs to, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationId>,
    pub error: Option<ResponseFailure>,
    pub frequency_penalty: f32,
    pub incomplete_details: Option<Incomplete>,
    pub instructions: Option<String>,
    pub max_output_tokens: Option<usize>,
    pub max_tool_calls: Option<usize>,
    pub model: String,
    pub output: Vec<OutputItem>,
    pub parallel_tool_calls: bool,
    pub presence_penalty: f32,
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
    #[schema(value_type = ShownToolChoice)]
    pub tool_choice: Value,
    /// The tools of the request; a function has every member, `null` where it was not given.
    #[schema(value_type = Vec<Object>)]
    pub tools: Vec<Value>,
    pub top_logprobs: usize,
    pub top_p: f32,
    pub truncation: String,
    pub usage: Option<Tokens>,
    pub user: Option<String>,
    pub metadata: Object,
    /// What was asked for and left out; an extension.
    #[serde(skip_serializing_if = "Warnings::is_empty")]
    pub warnings: Warnings,
    /// The receipt of the answer, if the request asks for one; an extension.
    #[schema(value_type = Option<Object>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Value>,
}

/// The conversation of a response.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ConversationId {
    pub id: String,
}

described! {
    /// A word, or an object, as in the request.
    name ShownToolChoice = (String) | (Object);
}

/// What kind of object it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Kind)]
pub(crate) enum ResponseKind {
    #[default]
    #[serde(rename = "response")]
    Response,
}

/// How far a response has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Queued,
    #[default]
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
    /// Tokens that were computed, and are in the cache now.
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
    /// Ends it with `status`.
    pub fn end(&mut self, status: Status) {
        self.status = status;
        self.completed_at = (status == Status::Completed).then(unix_now);
        if status == Status::Incomplete {
            self.incomplete_details = Some(Incomplete { reason: Reason::MaxOutputTokens });
        }
    }
}

/// How far an item has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ItemStatus {
    InProgress,
    Completed,
    Incomplete,
}

/// One item of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum OutputItem {
    Reasoning(Reasoning),
    Message(MessageItem),
    FunctionCall(FunctionCall),
    CustomToolCall(CustomCall),
    ToolSearchCall(SearchCall),
    Compaction(CompactionItem),
}

/// What the model thought.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Reasoning {
    pub id: String,
    pub summary: Vec<Passage>,
    pub content: Vec<Passage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted_content: Option<String>,
    pub status: ItemStatus,
}

/// A piece of reasoning.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Passage {
    SummaryText { text: String },
    ReasoningText { text: String },
}

/// What the model said.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Message)]
pub(crate) struct MessageItem {
    pub id: String,
    pub status: ItemStatus,
    pub role: Assistant,
    pub content: Vec<MessagePart>,
}

/// Who said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Assistant {
    Assistant,
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = Part)]
pub(crate) enum MessagePart {
    OutputText {
        text: String,
        /// None are ever made.
        #[schema(value_type = Vec<Object>)]
        annotations: [(); 0],
        /// Of every token, where they were asked for.
        #[schema(value_type = Vec<Object>)]
        logprobs: Vec<Value>,
    },
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct FunctionCall {
    pub id: String,
    pub call_id: String,
    pub name: String,
    /// The namespace that the function belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// JSON text of an object.
    pub arguments: String,
    pub status: ItemStatus,
}

/// A call of a custom tool.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct CustomCall {
    pub id: String,
    pub call_id: String,
    pub name: String,
    /// The namespace that the tool belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Free text.
    pub input: String,
    pub status: ItemStatus,
}

/// A call of the tool that searches for tools, which the client executes.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct SearchCall {
    pub id: String,
    pub call_id: String,
    pub arguments: Object,
    /// Always `client`.
    pub execution: String,
    pub status: ItemStatus,
}

/// What stands for the conversation before it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct CompactionItem {
    pub id: String,
    /// The summary that the model wrote; empty while it is written.
    pub encrypted_content: String,
}
