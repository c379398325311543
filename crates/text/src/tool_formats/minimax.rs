//! MiniMax-M2: `<minimax:tool_call>` around `<invoke name="NAME">`, each with
//! `<parameter name="KEY">VALUE</parameter>`. Strings are written as they are, other values as
//! JSON.

use super::format::ToolFormat;
use super::syntax::{CallSyntax, ParameterSyntax};
use crate::call_reader::LiteralRole::{End, Implicit, Start};
use crate::call_reader::tagged_calls::{CallTags, TaggedCalls};
use crate::think::THINK;
use std::borrow::Cow::Borrowed;

const BLOCK: &str = "<minimax:tool_call>";
const BLOCK_END: &str = "</minimax:tool_call>";
const INVOKE: &str = "<invoke name=\"";

/// The format of MiniMax-M2.
pub static MINIMAX: ToolFormat = ToolFormat {
    name: "minimax",
    detect: |template| template.contains(BLOCK),
    markers: &[BLOCK, BLOCK_END],
    literals: &[(BLOCK, Start), (INVOKE, Implicit), (BLOCK_END, End)],
    closing: &[(BLOCK_END, true)],
    anywhere: true,
    thinking: THINK,
    writes: CallSyntax {
        open: "<minimax:tool_call>\n",
        before: "<invoke name=\"NAME\">\n",
        after: "</invoke>\n",
        close: BLOCK_END,
        parameters: Some(ParameterSyntax {
            text: "<parameter name=\"KEY\">",
            json: "<parameter name=\"KEY\">",
            close: "</parameter>\n",
            end: "</parameter>",
            escaped_end: None,
            key: |key| (!key.contains(['\n', '<', '"'])).then(|| key.to_owned()),
        }),
        ..CallSyntax::PLAIN
    },
    reader: |literal| Box::new(TaggedCalls::new(TAGS, literal)),
    structure: None,
    suffix: None,
};

const TAGS: CallTags = CallTags {
    name: [Borrowed(INVOKE), Borrowed("\">")],
    key: [Borrowed("<parameter name=\""), Borrowed("\">")],
    ends: [Borrowed("</parameter>"), Borrowed("")],
    close: Borrowed("</invoke>"),
    block: Borrowed(BLOCK_END),
    ..CallTags::NONE
};
