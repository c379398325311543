//! The whole answer is `{"name": .., "parameters": {..}}`: Llama 3.

use super::format::ToolFormat;
use super::hermes::shows_tags;
use super::syntax::{AnswerSyntax, CallSyntax};
use crate::call_reader::LiteralRole::{Close, First, Start};
use crate::call_reader::json_calls::{JsonCalls, JsonStart};
use crate::think::THINK;

/// The format of Llama 3.
pub static LLAMA: ToolFormat = ToolFormat {
    name: "llama",
    detect: |template| {
        let header = ["<|start_header_id|>", "\"parameters\": "];
        let shown = template.contains("<|python_tag|>")
            || header.iter().all(|text| template.contains(text));
        shown && !shows_tags(template)
    },
    markers: &["<|python_tag|>"],
    literals: &[
        ("<|python_tag|>", Start),
        ("{", Start),
        ("[", First),
        (";", Close),
        (",", Close),
        ("]", Close),
    ],
    closing: &[],
    anywhere: false,
    thinking: THINK,
    writes: CallSyntax {
        before: "{\"name\": \"NAME\", \"parameters\": ",
        after: "}",
        many: false,
        answer: AnswerSyntax::TextOrCall,
        ..CallSyntax::PLAIN
    },
    reader: |literal| {
        let start = match literal {
            "{" => JsonStart::Inside,
            "[" => JsonStart::Object,
            _ => JsonStart::List,
        };
        Box::new(JsonCalls::new(start, false))
    },
    structure: None,
    suffix: None,
};
