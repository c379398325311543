//! Tools, calls and results as text, for templates that have no place for them.
//!
//! Tools are described in the system message in the form that Hermes introduced and that many
//! models were trained on: their signatures between `<tools>` tags, and results between
//! `<tool_response>` tags. Calls have the syntax of a format, by default Hermes' own.

use crate::message::{Message, Part, Role, Tool, ToolCall};
use serde_json::json;
use text::{ToolFormat, spaced_json};

/// The description of `tools`; `results` if their results come as text too.
pub(crate) fn description(
    tools: &[Tool],
    format: &ToolFormat,
    parallel: bool,
    results: bool,
) -> String {
    let signatures: Vec<String> = tools.iter().map(|tool| spaced_json(&tool.json())).collect();
    let example = format.written([("function_name", &json!({"parameter": "value"}))]);
    let several = match parallel {
        true => "Several calls may follow each other.",
        false => "Make one call at a time.",
    };
    let answered = match results {
        true => " Results are returned in <tool_response></tool_response> tags.",
        false => "",
    };
    format!(
        "# Tools\n\nYou can call these functions to answer the user, if they are of use. Their \
         signatures are in <tools></tools> tags:\n<tools>\n{}\n</tools>\n\nTo call a function, write \
         its name and its arguments like this:\n{example}\n{several}{answered}",
        signatures.join("\n"),
    )
}

/// A text with the calls after it.
pub(crate) fn with_calls(text: &str, calls: &[ToolCall], format: &ToolFormat) -> String {
    let calls = calls.iter().map(|call| (call.name.as_str(), &call.arguments));
    let between = if text.is_empty() { "" } else { "\n" };
    format!("{text}{between}{}", format.written(calls))
}

/// The result of a call as a message of the user.
pub(crate) fn response(result: &Message) -> Message {
    let text = result.text().unwrap_or_default();
    let text = format!("<tool_response>\n{text}\n</tool_response>");
    Message { role: Role::User, content: vec![Part::Text(text)], ..Message::default() }
}
