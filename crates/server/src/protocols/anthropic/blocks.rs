//! The content of messages: a string, or blocks distinguished by their `type`.

use crate::http::error::HttpError;
use crate::http::fields::{ObjectReader, wrong};
use crate::http::wire;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Blocks that Anthropic's own tools leave in an answer, and reasoning that only its servers can
/// read: a history may hold them, and no other model can use them.
const FOREIGN: &[&str] = &[
    "bash_code_execution_tool_result",
    "code_execution_tool_result",
    "mcp_tool_result",
    "mcp_tool_use",
    "redacted_thinking",
    "server_tool_use",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "web_fetch_tool_result",
    "web_search_tool_result",
];

/// The content of a message.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = AnthropicContent)]
#[expect(dead_code, reason = "the document's form of what `blocks` reads with better errors")]
pub(crate) enum Content {
    Text(String),
    Blocks(Vec<InputBlock>),
}

/// The system prompt.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = AnthropicSystemContent)]
#[expect(dead_code, reason = "the document's form of what `texts` reads with better errors")]
pub(crate) enum SystemContent {
    Text(String),
    Blocks(Vec<TextBlock>),
}

/// A part of a message.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = AnthropicInputBlock)]
pub(crate) enum InputBlock {
    Text(TextBlock),
    Thinking(ThinkingBlock),
    ToolUse(ToolUse),
    ToolResult(ToolResult),
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicTextBlock)]
pub(crate) struct TextBlock {
    pub text: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicThinkingBlock)]
pub(crate) struct ThinkingBlock {
    pub thinking: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicToolUse)]
pub(crate) struct ToolUse {
    pub id: String,
    pub name: String,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub input: Value,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicToolResult)]
pub(crate) struct ToolResult {
    pub tool_use_id: String,
    #[serde(default)]
    #[schema(value_type = Option<SystemContent>)]
    pub content: Value,
    pub is_error: Option<bool>,
}

/// The blocks of `content`, each with its path; a string is one of text. What no model but
/// Anthropic's can use is left out.
pub(crate) fn read(content: &Value, path: &str) -> Result<Vec<(String, InputBlock)>, HttpError> {
    match content {
        Value::String(text) => {
            Ok(vec![(path.to_owned(), InputBlock::Text(TextBlock { text: text.clone() }))])
        }
        Value::Array(values) => {
            let blocks = values.iter().enumerate().map(|(at, value)| {
                let path = format!("{path}[{at}]");
                Ok(block(value, &path)?.map(|block| (path, block)))
            });
            blocks.filter_map(Result::transpose).collect()
        }
        Value::Null => Err(wire::missing(path)),
        other => Err(wrong(path, "a string or an array of blocks", other)),
    }
}

/// The texts of `content`, which may be a string, blocks of text, or nothing.
pub(crate) fn texts(content: &Value, path: &str) -> Result<Vec<String>, HttpError> {
    if content.is_null() {
        return Ok(Vec::new());
    }
    let text = |(path, block): (String, InputBlock)| match block {
        InputBlock::Text(block) => Ok(block.text),
        _ => Err(misplaced(&path, "only text can stand here")),
    };
    read(content, path)?.into_iter().map(text).collect()
}

/// The error of a block that stands where it cannot.
pub(crate) fn misplaced(path: &str, why: &str) -> HttpError {
    HttpError::at(&format!("{path}.type"), why)
}

fn block(value: &Value, path: &str) -> Result<Option<InputBlock>, HttpError> {
    let fields = ObjectReader::of(value, path)?;
    let kind = fields.text("type")?.ok_or_else(|| fields.missing("type"))?;
    Ok(Some(match kind {
        "text" => InputBlock::Text(wire::part(value, path)?),
        "thinking" => InputBlock::Thinking(wire::part(value, path)?),
        "tool_use" => InputBlock::ToolUse(wire::part(value, path)?),
        "tool_result" => InputBlock::ToolResult(wire::part(value, path)?),
        kind if FOREIGN.contains(&kind) => {
            tracing::debug!(path, kind, "block left out");
            return Ok(None);
        }
        _ => return Err(misplaced(path, &format!("blocks of type {kind:?} are not supported"))),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check_error(content: Value, param: &str) {
        let error = read(&content, "c").expect_err(&content.to_string());
        assert_eq!(error.body()["error"]["param"], param, "{content}");
    }

    #[test]
    fn faults_name_the_block_and_member() {
        check_error(json!(null), "c");
        check_error(json!(3), "c");
        check_error(json!({"type": "text"}), "c");
        check_error(json!(["x"]), "c[0]");
        check_error(json!([{"text": "x"}]), "c[0].type");
        check_error(json!([{"type": 3}]), "c[0].type");
        check_error(json!([{"type": "text", "text": "a"}, {"type": "image"}]), "c[1].type");
        check_error(json!([{"type": "document"}]), "c[0].type");
        check_error(json!([{"type": "text", "text": 3}]), "c[0].text");
        check_error(json!([{"type": "text"}]), "c[0].text");
        check_error(json!([{"type": "tool_use", "id": "a", "name": []}]), "c[0].name");
        check_error(json!([{"type": "tool_result", "tool_use_id": {}}]), "c[0].tool_use_id");
        let result = json!([{"type": "text", "text": "a"}, {"type": "tool_use"}]);
        assert!(texts(&result, "c").is_err());
    }

    #[test]
    fn members_stand_in_any_order_and_unknown_ones_are_ignored() {
        let block = json!([{"cache_control": {"type": "ephemeral"}, "text": "a", "type": "text",
                            "citations": null}]);
        assert_eq!(texts(&block, "c").unwrap(), ["a"]);
    }

    #[test]
    fn what_only_anthropic_can_read_is_left_out() {
        let blocks = json!([
            {"type": "redacted_thinking", "data": "x"},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
            {"type": "text", "text": "found"},
        ]);
        assert_eq!(read(&blocks, "c").unwrap().len(), 1);
    }
}
