//! The content of messages: a string, or blocks distinguished by their `type`.
//!
//! Documents and results of searches that are text count as text.

use crate::http::described::described;
use crate::http::error::HttpError;
use crate::http::fields::{ObjectReader, wrong};
use crate::http::wire;
use crate::protocols::attachments::{self, PartPlace};
use crate::protocols::sealed::unsealed;
use crate::protocols::warnings::Warnings;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Blocks that hold nothing for another model: reasoning that only Anthropic's servers can read,
/// places of files and windows, and marks. They are left out without a warning.
const SILENT: &[&str] = &["browser_state", "container_upload", "fallback", "redacted_thinking"];

/// Blocks that Anthropic's own tools leave in a history. They are left out, and named in a warning.
const FOREIGN: &[&str] = &[
    "advisor_tool_result",
    "bash_code_execution_tool_result",
    "code_execution_tool_result",
    "mcp_tool_listing",
    "mcp_tool_result",
    "mcp_tool_use",
    "server_tool_use",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "web_fetch_tool_result",
    "web_search_tool_result",
];

/// What a warning says of [`FOREIGN`] blocks.
const LEFT_OUT: &str = "blocks of this type are not supported and were left out";

described! {
    /// The content of a message.
    pub(crate) value Content as "AnthropicContent" = (String) | [GivenBlock];
    /// The system prompt.
    pub(crate) value SystemContent as "AnthropicSystemContent" = (String) | [TextBlock];
    /// A part of a message.
    name GivenBlock as "AnthropicInputBlock" = ("text": TextBlock)
        | ("thinking": ThinkingBlock)
        | ("tool_use": ToolUse)
        | ("tool_result": ToolResult)
        | ("document": DocumentBlock)
        | ("search_result": SearchResultBlock)
        | ("tool_reference": ToolReferenceBlock);
}

/// A part of a message as it is read.
#[derive(Debug)]
pub(crate) enum InputBlock {
    Text(String),
    /// Reasoning of the model.
    Thinking(String),
    ToolUse(ToolUse),
    ToolResult(ToolResult),
    /// A summary that replaces what stands before it.
    Summary(String),
    /// The definition of a tool.
    ToolAddition(Value),
    /// The name of a tool that cannot be called any more.
    ToolRemoval(String),
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
    /// Holds the reasoning where `thinking` is empty.
    pub signature: Option<String>,
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
    pub content: Option<SystemContent>,
    pub is_error: Option<bool>,
}

/// A document. One that is no text is refused in a message, and a note in the result of a tool.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicDocument)]
pub(crate) struct DocumentBlock {
    source: DocumentSource,
    title: Option<String>,
    context: Option<String>,
    citations: Option<Citations>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicDocumentSource)]
struct DocumentSource {
    /// `text`, `content`, or `base64` with the media type of a text.
    #[serde(rename = "type")]
    kind: String,
    media_type: Option<String>,
    data: Option<String>,
    /// A text, or blocks of text.
    content: Option<SystemContent>,
}

/// Answers have no citations, which a warning says where they are asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicCitations)]
struct Citations {
    enabled: Option<bool>,
}

/// A result of a search.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicSearchResult)]
pub(crate) struct SearchResultBlock {
    title: String,
    source: String,
    /// Blocks of text.
    #[schema(value_type = Vec<TextBlock>)]
    content: Value,
    citations: Option<Citations>,
}

/// A tool that a search has found. All tools of a request are in its prompt already.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicToolReference)]
pub(crate) struct ToolReferenceBlock {
    tool_name: String,
}

/// Whose content is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockSource {
    /// A person, or a program that writes for one.
    User,
    /// The model. What cannot be read is left out, since no client can change it.
    Assistant,
    System,
    /// A tool. A note stands for what cannot be read.
    Tool,
}

/// The blocks of `content`, each with its path; a string is one of text. What no model but
/// Anthropic's can use is left out.
pub(crate) fn read(
    content: &Value,
    path: &str,
    source: BlockSource,
    warnings: &mut Warnings,
) -> Result<Vec<(String, InputBlock)>, HttpError> {
    match content {
        Value::String(text) => Ok(vec![(path.to_owned(), InputBlock::Text(text.clone()))]),
        Value::Array(values) => {
            let blocks = values.iter().enumerate().map(|(at, value)| {
                let path = format!("{path}[{at}]");
                Ok(block(value, &path, source, warnings)?.map(|block| (path, block)))
            });
            blocks.filter_map(Result::transpose).collect()
        }
        Value::Null => Err(wire::missing(path)),
        other => Err(wrong(path, "a string or an array of blocks", other)),
    }
}

/// The texts of `content`, which may be a string, blocks of text, or nothing.
pub(crate) fn texts(
    content: Option<&Value>,
    path: &str,
    source: BlockSource,
    warnings: &mut Warnings,
) -> Result<Vec<String>, HttpError> {
    let Some(content) = content.filter(|content| !content.is_null()) else {
        return Ok(Vec::new());
    };
    let text = |(path, block): (String, InputBlock)| match block {
        InputBlock::Text(text) => Ok(text),
        _ => Err(misplaced(&path, "only text can stand here")),
    };
    read(content, path, source, warnings)?.into_iter().map(text).collect()
}

/// The error of a block that stands where it cannot.
pub(crate) fn misplaced(path: &str, why: &str) -> HttpError {
    HttpError::at(&format!("{path}.type"), why)
}

fn block(
    value: &Value,
    path: &str,
    source: BlockSource,
    warnings: &mut Warnings,
) -> Result<Option<InputBlock>, HttpError> {
    let fields = ObjectReader::of(value, path)?;
    let kind = fields.text("type")?.ok_or_else(|| fields.missing("type"))?;
    Ok(Some(match kind {
        "text" => InputBlock::Text(wire::part::<TextBlock>(value, path)?.text),
        "thinking" => InputBlock::Thinking(thought(wire::part(value, path)?)),
        "tool_use" => InputBlock::ToolUse(wire::part(value, path)?),
        "tool_result" => InputBlock::ToolResult(wire::part(value, path)?),
        "document" => match document(value, path, source, warnings)? {
            Some(text) => InputBlock::Text(text),
            None => return Ok(None),
        },
        "search_result" => InputBlock::Text(search_result(value, path, source, warnings)?),
        "tool_reference" => {
            let ToolReferenceBlock { tool_name } = wire::part(value, path)?;
            InputBlock::Text(format!("This tool can be called now: {tool_name}"))
        }
        "compaction" => match fields.text("content")? {
            Some(text) => InputBlock::Summary(text.to_owned()),
            // A compaction that failed.
            None => return Ok(None),
        },
        "tool_addition" | "tool_removal" if source == BlockSource::System => {
            return tool_change(&fields, kind == "tool_addition", warnings);
        }
        kind if SILENT.contains(&kind) => return Ok(None),
        kind if source == BlockSource::Assistant || FOREIGN.contains(&kind) => {
            warnings.add(kind, LEFT_OUT);
            return Ok(None);
        }
        kind => InputBlock::Text(unread(kind, &format!("{path}.type"), source)?),
    }))
}

fn thought(block: ThinkingBlock) -> String {
    let ThinkingBlock { thinking, signature } = block;
    let hidden = signature.filter(|_| thinking.is_empty()).and_then(|text| unsealed(&text));
    hidden.unwrap_or(thinking)
}

/// What the model reads of a part of type `kind` that is no text; `path` is the member that says
/// the type.
fn unread(kind: &str, path: &str, source: BlockSource) -> Result<String, HttpError> {
    let place = if source == BlockSource::Tool { PartPlace::Result } else { PartPlace::Message };
    attachments::unread(kind, None, path, place)
}

/// The text of a document; `None` where an answer has one that cannot be read.
fn document(
    value: &Value,
    path: &str,
    source: BlockSource,
    warnings: &mut Warnings,
) -> Result<Option<String>, HttpError> {
    let DocumentBlock { source: given, title, context, citations } = wire::part(value, path)?;
    warn_of(citations, warnings);
    let path = format!("{path}.source");
    let data = || given.data.as_deref().ok_or_else(|| wire::missing(&format!("{path}.data")));
    let text = match given.kind.as_str() {
        "text" => Some(data()?.to_owned()),
        "base64" if given.media_type.as_deref().is_some_and(attachments::is_text) => {
            attachments::decoded(data()?)
        }
        "content" => {
            let path = format!("{path}.content");
            Some(texts(given.content.as_deref(), &path, source, warnings)?.join("\n"))
        }
        _ => None,
    };
    Ok(Some(match text {
        Some(text) => attachments::document(title.as_deref(), context.as_deref(), &text),
        None if source == BlockSource::Assistant => {
            warnings.add("document", LEFT_OUT);
            return Ok(None);
        }
        None => unread("document", &format!("{path}.type"), source)?,
    }))
}

fn search_result(
    value: &Value,
    path: &str,
    source: BlockSource,
    warnings: &mut Warnings,
) -> Result<String, HttpError> {
    let block: SearchResultBlock = wire::part(value, path)?;
    warn_of(block.citations, warnings);
    let content = texts(Some(&block.content), &format!("{path}.content"), source, warnings)?;
    Ok(attachments::search_result(&block.title, &block.source, &content.join("\n")))
}

fn warn_of(citations: Option<Citations>, warnings: &mut Warnings) {
    if citations.is_some_and(|citations| citations.enabled == Some(true)) {
        warnings.add("citations", "answers have none");
    }
}

/// A block that changes the tools; `None` where it names one that is known already.
fn tool_change(
    fields: &ObjectReader<'_>,
    adds: bool,
    warnings: &mut Warnings,
) -> Result<Option<InputBlock>, HttpError> {
    let tool = fields.fields("tool")?.ok_or_else(|| fields.missing("tool"))?;
    if let Some(foreign @ ("mcp_tool_reference" | "mcp_toolset_reference")) = tool.text("type")? {
        warnings.add(foreign, LEFT_OUT);
        return Ok(None);
    }
    if !adds {
        return Ok(Some(InputBlock::ToolRemoval(tool.required("name")?.to_owned())));
    }
    match tool.value("definition") {
        Some(definition) => Ok(Some(InputBlock::ToolAddition(definition.clone()))),
        None => tool.required("name").map(|_| None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(content: &Value, source: BlockSource) -> Result<(Vec<String>, Warnings), HttpError> {
        let mut warnings = Warnings::default();
        let blocks = super::read(content, "c", source, &mut warnings)?;
        let shown = blocks.into_iter().map(|(_, block)| match block {
            InputBlock::Text(text) | InputBlock::Thinking(text) => text,
            other => format!("{other:?}"),
        });
        Ok((shown.collect(), warnings))
    }

    fn check(block: Value, source: BlockSource, expected: &str) {
        let (shown, _) = read(&json!([block]), source).unwrap();
        assert_eq!(shown, [expected], "{block}");
    }

    fn check_error(content: Value, param: &str) {
        let error = read(&content, BlockSource::User).expect_err(&content.to_string());
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
        check_error(json!([{"type": "document"}]), "c[0].source");
        check_error(json!([{"type": "document", "source": {"type": "text"}}]), "c[0].source.data");
        let search = json!({"type": "search_result", "title": "t", "source": "s", "content": 3});
        check_error(json!([search]), "c[0].content");
        check_error(json!([{"type": "tool_reference"}]), "c[0].tool_name");
        check_error(json!([{"type": "text", "text": 3}]), "c[0].text");
        check_error(json!([{"type": "text"}]), "c[0].text");
        check_error(json!([{"type": "tool_use", "id": "a", "name": []}]), "c[0].name");
        check_error(json!([{"type": "tool_result", "tool_use_id": {}}]), "c[0].tool_use_id");
        let result = json!([{"type": "text", "text": "a"}, {"type": "tool_use"}]);
        assert!(texts(Some(&result), "c", BlockSource::Tool, &mut Warnings::default()).is_err());
    }

    #[test]
    fn members_stand_in_any_order_and_unknown_ones_are_ignored() {
        let block = json!({"cache_control": {"type": "ephemeral"}, "text": "a", "type": "text",
                           "citations": null});
        check(block, BlockSource::User, "a");
    }

    #[test]
    fn blocks_that_hold_text_are_text() {
        let document = |source: Value| json!({"type": "document", "source": source, "title": "t"});
        for source in [
            json!({"type": "text", "media_type": "text/plain", "data": "x\ny"}),
            json!({"type": "content", "content": "x\ny"}),
            json!({"type": "content", "content": [
                {"type": "text", "text": "x"}, {"type": "text", "text": "y"}]}),
            json!({"type": "base64", "media_type": "text/plain", "data": "eAp5"}),
        ] {
            check(document(source.clone()), BlockSource::User, "Document: t\n\nx\ny");
            check(document(source), BlockSource::Tool, "Document: t\n\nx\ny");
        }
        let found = json!({"type": "search_result", "title": "t", "source": "s",
                           "content": [{"type": "text", "text": "x"}]});
        check(found, BlockSource::Tool, "Search result: t\nSource: s\n\nx");
        let reference = json!({"type": "tool_reference", "tool_name": "f"});
        check(reference, BlockSource::Tool, "This tool can be called now: f");
    }

    #[test]
    fn a_note_stands_for_images_and_files_in_results_and_messages_with_them_are_refused() {
        let pdf = json!({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0x"});
        let image = json!({"type": "image", "source": {"type": "url", "url": "http://x"}});
        for (block, note, path) in [
            (image.clone(), "[image: not supported]", "c[0].type"),
            (
                json!({"type": "document", "source": pdf}),
                "[document: not supported]",
                "c[0].source.type",
            ),
            (
                json!({"type": "document", "source": {"type": "url", "url": "http://x"}}),
                "[document: not supported]",
                "c[0].source.type",
            ),
            (
                json!({"type": "document", "source": {"type": "content", "content": [image]}}),
                "[image: not supported]",
                "c[0].source.content[0].type",
            ),
            (json!({"type": "hologram"}), "[hologram: not supported]", "c[0].type"),
        ] {
            check(block.clone(), BlockSource::Tool, note);
            check_error(json!([block]), path);
        }
    }

    #[test]
    fn what_only_anthropic_can_read_is_left_out() {
        let blocks = json!([
            {"type": "redacted_thinking", "data": "x"},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
            {"type": "hologram"},
            {"type": "document", "source": {"type": "url", "url": "http://x"}},
            {"type": "container_upload", "file_id": "f"},
            {"type": "browser_state", "tabs": []},
            {"type": "text", "text": "found"},
        ]);
        let (shown, warnings) = read(&blocks, BlockSource::Assistant).unwrap();
        assert_eq!(shown, ["found"]);
        let named: Vec<String> =
            ["server_tool_use", "web_search_tool_result", "hologram", "document"]
                .map(|name| format!("{name}: {LEFT_OUT}"))
                .into();
        assert_eq!(json!(warnings), json!(named));
    }

    #[test]
    fn reasoning_that_was_not_shown_comes_back_in_its_signature() {
        let block = |thinking: &str, signature: String| json!({"type": "thinking", "thinking": thinking, "signature": signature});
        let hidden = crate::protocols::sealed::sealed("why");
        check(block("", hidden.clone()), BlockSource::Assistant, "why");
        check(block("x", hidden), BlockSource::Assistant, "x");
        check(block("", "of another server".into()), BlockSource::Assistant, "");
    }

    #[test]
    fn citations_that_are_asked_for_are_warned_of() {
        let warns = |enabled: bool| {
            let source = json!({"type": "text", "data": "x"});
            let block = json!({"type": "document", "source": source,
                               "citations": {"enabled": enabled}});
            !read(&json!([block]), BlockSource::User).unwrap().1.is_empty()
        };
        assert!(warns(true) && !warns(false));
    }
}
