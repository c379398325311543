//! Chat completions and their chunks as they are written.

use crate::generate::answer::AnswerCall;
use crate::generate::logprobs::TokenLogprob;
use serde::Serialize;
use utoipa::ToSchema;

/// One of the answers to a conversation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatChoice {
    pub index: usize,
    pub message: AssistantMessage,
    pub logprobs: Option<ChatLogprobs>,
    /// `stop`, `length`, `tool_calls`, or `function_call` where the request spoke of functions.
    pub finish_reason: Option<&'static str>,
}

/// What the model says.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChatAssistantMessage)]
pub(crate) struct AssistantMessage {
    pub role: &'static str,
    pub content: Option<String>,
    pub refusal: Option<String>,
    /// What it thought.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub tool_calls: Vec<AnswerToolCall>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function_call: Option<CalledFunction>,
}

/// A call of a tool.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChatToolCall)]
pub(crate) struct AnswerToolCall {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    function: CalledFunction,
}

/// What is called.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChatCalledFunction)]
pub(crate) struct CalledFunction {
    name: String,
    /// The JSON text of an object.
    arguments: String,
}

/// The log probabilities of a choice's tokens.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatLogprobs {
    pub content: Vec<TokenLogprob>,
    pub refusal: Option<String>,
}

/// A step of one of the answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChunkChoice {
    pub index: usize,
    pub delta: ChatDelta,
    pub logprobs: Option<ChatLogprobs>,
    pub finish_reason: Option<&'static str>,
}

/// What a step adds.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct ChatDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub tool_calls: Vec<ToolCallDelta>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function_call: Option<FunctionDelta>,
}

/// A step of a call: its names, then pieces of its arguments.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = ChatToolCallDelta)]
pub(crate) struct ToolCallDelta {
    pub index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    pub function: FunctionDelta,
}

/// A step of what is called.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = ChatFunctionDelta)]
pub(crate) struct FunctionDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub arguments: String,
}

impl From<&AnswerCall> for AnswerToolCall {
    fn from(call: &AnswerCall) -> Self {
        Self { id: call.id.clone(), kind: "function", function: call.into() }
    }
}

impl From<&AnswerCall> for CalledFunction {
    fn from(call: &AnswerCall) -> Self {
        Self { name: call.name.clone(), arguments: call.arguments.clone() }
    }
}
