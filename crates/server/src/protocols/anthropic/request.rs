//! What clients of Anthropic's API send. Content, which may be a string or blocks, is read by
//! `blocks`.

use crate::http::wire::{Object, body};
use crate::protocols::anthropic::blocks::{Content, SystemContent};
use crate::protocols::anthropic::edits::ContextEdits;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

body! {
    /// A message asked for.
    #[schema(as = AnthropicMessageRequest)]
    pub(crate) struct MessageRequest {
        pub conversation: Conversation,
        pub settings: MessageSettings,
    }
}

/// What the prompt is made of.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicConversation)]
pub(crate) struct Conversation {
    /// The name of a model; any name where one is served.
    #[serde(rename = "model")]
    _model: Option<String>,
    #[schema(min_items = 1, max_items = 100_000)]
    pub messages: Vec<InputMessage>,
    pub system: Option<SystemContent>,
    pub tools: Option<Vec<AnthropicTool>>,
    pub tool_choice: Option<AnthropicToolChoice>,
    pub thinking: Option<AnthropicThinking>,
    pub output_config: Option<OutputConfig>,
    /// Where `output_config` holds no format.
    pub output_format: Option<OutputFormat>,
    /// What is removed from the conversation ahead of its answer.
    pub context_management: Option<ContextEdits>,
}

/// How the answer is made.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicSettings)]
pub(crate) struct MessageSettings {
    /// Most tokens of the answer, reasoning included.
    #[schema(required = true, nullable = false, minimum = 1)]
    pub max_tokens: Option<usize>,
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f32>,
    #[schema(minimum = 0, maximum = 1)]
    pub top_p: Option<f32>,
    pub top_k: Option<usize>,
    /// Texts that end the answer; empty ones are ignored.
    #[schema(max_items = 16)]
    pub stop_sequences: Option<Vec<String>>,
    pub metadata: Option<Metadata>,
    pub stream: Option<bool>,
}

/// A message of the conversation.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicInputMessage)]
pub(crate) struct InputMessage {
    pub role: InputRole,
    #[serde(default)]
    pub content: Content,
    /// How long a message of the system is shown.
    pub clear_at: Option<ClearAt>,
    /// Not supported for a single message; a warning says so.
    pub output_config: Option<Object>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AnthropicClearAt)]
pub(crate) enum ClearAt {
    NextUserMessage,
    Never,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = AnthropicRole)]
pub(crate) enum InputRole {
    User,
    Assistant,
    System,
}

/// A tool. One without `input_schema` whose `type` is not `custom` runs on Anthropic's servers,
/// and is left out.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct AnthropicTool {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub name: Option<String>,
    pub description: Option<String>,
    pub input_schema: Option<Object>,
    /// The input of calls keeps to the schema.
    pub strict: Option<bool>,
    /// Inputs that the model reads as the `examples` of the schema.
    pub input_examples: Option<Vec<Object>>,
    /// Who may call it; a warning says where that is not the model itself.
    pub allowed_callers: Option<Vec<String>>,
}

#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct AnthropicToolChoice {
    #[serde(rename = "type")]
    pub kind: ToolChoiceKind,
    /// The tool, where `type` is `tool`.
    pub name: Option<String>,
    pub disable_parallel_tool_use: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = AnthropicToolChoiceKind)]
pub(crate) enum ToolChoiceKind {
    Auto,
    Any,
    Tool,
    None,
}

#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct AnthropicThinking {
    #[serde(rename = "type")]
    pub kind: ThinkingKind,
    /// Most tokens of reasoning.
    #[schema(minimum = 1)]
    pub budget_tokens: Option<usize>,
    pub display: Option<ThinkingDisplay>,
}

/// What an answer shows of the reasoning.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = AnthropicThinkingDisplay)]
pub(crate) enum ThinkingDisplay {
    /// All of it.
    Summarized,
    /// As `summarized`.
    Updates,
    /// Blocks without text. Their signatures hold it, encoded and not secret.
    Omitted,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AnthropicThinkingKind)]
pub(crate) enum ThinkingKind {
    Enabled,
    Disabled,
    Adaptive,
    /// As `disabled`: text between calls stays text.
    BetweenTools,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicOutputConfig)]
pub(crate) struct OutputConfig {
    pub effort: Option<Effort>,
    pub format: Option<OutputFormat>,
}

/// How much the model thinks, where its template knows levels.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = AnthropicEffort)]
pub(crate) enum Effort {
    Low,
    Medium,
    High,
    XHigh,
    Max,
}

/// The form of the answer's text.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicOutputFormat)]
pub(crate) struct OutputFormat {
    #[serde(rename = "type")]
    pub kind: OutputFormatKind,
    #[schema(value_type = Object)]
    pub schema: Value,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AnthropicOutputFormatKind)]
pub(crate) enum OutputFormatKind {
    JsonSchema,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicMetadata)]
pub(crate) struct Metadata {
    /// The user of the request: the users of a key share its part of the machine evenly.
    pub user_id: Option<String>,
}
