//! Qwen3-Coder: `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`

use super::format::ToolFormat;
use super::syntax::{CallSyntax, ParameterSyntax};
use crate::call_reader::LiteralRole::{Close, Start};
use crate::call_reader::tagged_calls::{CallTags, TaggedCalls};
use crate::think::THINK;
use std::borrow::Cow::Borrowed;

const FUNCTION: &str = "<function=";

/// The format of Qwen3-Coder.
pub static QWEN_CODER: ToolFormat = ToolFormat {
    name: "qwen-coder",
    detect: |template| template.contains(FUNCTION),
    markers: &["<tool_call>", "</tool_call>"],
    literals: &[("<tool_call>", Start), (FUNCTION, Start), ("</tool_call>", Close)],
    closing: &[("</tool_call>", true)],
    anywhere: true,
    thinking: THINK,
    writes: CallSyntax {
        begin: "<tool_call>",
        before: "\n<function=NAME>\n",
        after: "</function>\n</tool_call>",
        between: "\n",
        parameters: Some(ParameterSyntax {
            text: "<parameter=KEY>\n",
            json: "<parameter=KEY>\n",
            close: "\n</parameter>\n",
            end: "</parameter>",
            escaped_end: None,
            key: |key| (!key.contains(['\n', '<', '>'])).then(|| key.to_owned()),
        }),
        ..CallSyntax::PLAIN
    },
    reader: |literal| Box::new(TaggedCalls::new(TAGS, literal)),
    structure: None,
    suffix: None,
};

/// One line break on each side of a value belongs to the tags.
const TAGS: CallTags = CallTags {
    name: [Borrowed(FUNCTION), Borrowed(">")],
    key: [Borrowed("<parameter="), Borrowed(">")],
    ends: [Borrowed("\n</parameter>"), Borrowed("</parameter>")],
    leads: true,
    close: Borrowed("</function>"),
    ..CallTags::NONE
};
