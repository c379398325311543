//! `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`: GLM, Ling,
//! Laguna.
//!
//! Strings are written as they are, other values as JSON. GLM 4.5 and 4.6 and Ling 3 write each tag
//! on a line of its own, later models of GLM and Laguna write no line breaks; calls of all are read
//! with and without them.

use super::format::ToolFormat;
use super::syntax::{CallSyntax, ParameterSyntax};
use crate::call_reader::LiteralRole::{Close, Start};
use crate::call_reader::tagged_calls::{CallTags, TaggedCalls};
use crate::think::THINK;
use std::borrow::Cow::Borrowed;

const CALL: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
pub(super) const KEY: &str = "<arg_key>";
const VALUE_END: &str = "</arg_value>";

/// The tags after the name of a tool, which the tag of the first argument ends.
pub(super) const TAGS: CallTags = CallTags {
    call: Borrowed(CALL),
    key: [Borrowed(KEY), Borrowed("</arg_key>")],
    value: Borrowed("<arg_value>"),
    ends: [Borrowed(VALUE_END), Borrowed("")],
    close: Borrowed(CLOSE),
    ..CallTags::NONE
};

/// The syntax of an argument, with what readers take for the end of the last string.
pub(super) const PARAMETERS: ParameterSyntax = ParameterSyntax {
    text: "<arg_key>KEY</arg_key><arg_value>",
    json: "<arg_key>KEY</arg_key><arg_value>",
    close: VALUE_END,
    end: VALUE_END,
    escaped_end: None,
    key: |key| (!key.contains(['\n', '<'])).then(|| key.to_owned()),
};

/// The same on lines of their own.
pub(super) const LINES: ParameterSyntax = ParameterSyntax {
    text: "<arg_key>KEY</arg_key>\n<arg_value>",
    json: "<arg_key>KEY</arg_key>\n<arg_value>",
    close: "</arg_value>\n",
    ..PARAMETERS
};

/// Calls without line breaks.
const BARE: ToolFormat = ToolFormat {
    name: "glm",
    detect: |template| template.contains(KEY),
    markers: &[CALL, CLOSE, KEY, "</arg_key>", "<arg_value>", VALUE_END],
    literals: &[(CALL, Start), (CLOSE, Close)],
    closing: &[(CLOSE, true)],
    anywhere: true,
    thinking: THINK,
    writes: CallSyntax {
        begin: CALL,
        before: "NAME",
        after: CLOSE,
        parameters: Some(PARAMETERS),
        ..CallSyntax::PLAIN
    },
    reader: |literal| Box::new(TaggedCalls::new(TAGS, literal)),
    structure: None,
    suffix: None,
};

/// The format of GLM 4.7, GLM 5 and later, and of Laguna.
pub static GLM: ToolFormat = BARE;

/// The format of GLM 4.5 and 4.6, and of Ling 3.
pub static GLM_45: ToolFormat = ToolFormat {
    name: "glm-4.5",
    detect: |template| {
        let lines = ["</arg_key>\n<arg_value>", "</arg_key>\\n<arg_value>"];
        lines.iter().any(|text| template.contains(text))
    },
    writes: CallSyntax { before: "NAME\n", between: "\n", parameters: Some(LINES), ..BARE.writes },
    ..BARE
};
