//! `<tool_call>{"name": .., "arguments": {..}}</tool_call>`: Hermes, Qwen 2.5, Qwen 3.

use super::format::ToolFormat;
use super::syntax::CallSyntax;
use crate::call_reader::LiteralRole::{Close, Start};
use crate::call_reader::json_calls::{JsonCalls, JsonStart};
use crate::think::THINK;

/// The format of Hermes, Qwen 2.5 and Qwen 3.
pub static HERMES: ToolFormat = ToolFormat {
    name: "hermes",
    detect: |template| template.contains("<tool_call>"),
    markers: &["<tool_call>", "</tool_call>"],
    literals: &[("<tool_call>", Start), ("</tool_call>", Close)],
    closing: &[("</tool_call>", true)],
    anywhere: true,
    thinking: THINK,
    writes: CallSyntax {
        begin: "<tool_call>",
        before: "\n{\"name\": \"NAME\", \"arguments\": ",
        after: "}\n</tool_call>",
        between: "\n",
        ..CallSyntax::PLAIN
    },
    reader: |_| Box::new(JsonCalls::new(JsonStart::Object, true)),
    structure: None,
    suffix: None,
};

/// Whether a template shows the tags of this format or of one that shares them.
pub(super) fn shows_tags(template: &str) -> bool {
    ["<tool_call>", "<arg_key>", "<function="].iter().any(|tag| template.contains(tag))
}
