//! The items that an answer consists of, as clients see them.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

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

impl MessagePart {
    /// A part of this text.
    pub fn text(text: String, logprobs: Vec<Value>) -> Self {
        Self::OutputText { text, annotations: [], logprobs }
    }
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
