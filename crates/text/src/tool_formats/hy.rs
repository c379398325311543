//! Hy3 and Hy4: a block of calls, each as GLM writes it, with a tag after the name. Names of tags
//! may have a suffix, as in `<tool_calls:opensource>`, which the chat template says.

use super::format::ToolFormat;
use super::glm::{self, LINES};
use super::suffixed::suffix;
use super::syntax::CallSyntax;
use crate::call_reader::LiteralRole::{Close, End, Start};
use crate::call_reader::tagged_calls::{CallTags, TaggedCalls};
use crate::think::THINK;
use std::borrow::Cow::Borrowed;

const BLOCK: &str = "<tool_calls>";
const BLOCK_END: &str = "</tool_calls>";

/// The format of Hy3 and Hy4 without a suffix.
pub static HY: ToolFormat = ToolFormat {
    name: "hy",
    detect: |template| template.contains("<tool_sep") && template.contains("<arg_key"),
    markers: &[
        BLOCK,
        BLOCK_END,
        "<tool_call>",
        "</tool_call>",
        "<tool_sep>",
        glm::KEY,
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
    ],
    literals: &[(BLOCK, Start), ("<tool_call>", Start), ("</tool_call>", Close), (BLOCK_END, End)],
    closing: &[(BLOCK_END, true)],
    anywhere: true,
    thinking: THINK,
    writes: CallSyntax {
        open: "<tool_calls>\n",
        before: "<tool_call>NAME<tool_sep>\n",
        after: "</tool_call>\n",
        close: BLOCK_END,
        parameters: Some(LINES),
        ..CallSyntax::PLAIN
    },
    reader: |literal| {
        let tags =
            CallTags { separator: Borrowed("<tool_sep>"), block: Borrowed(BLOCK_END), ..glm::TAGS };
        let tags = tags.with_suffix(suffix(literal).unwrap_or_default());
        Box::new(TaggedCalls::new(tags, literal))
    },
    structure: None,
    suffix: Some(|template| {
        let (_, rest) = template.split_once("<arg_key")?;
        match rest.strip_prefix("{}>") {
            None if rest.starts_with(':') => suffix(rest),
            None => None,
            // The template inserts a variable into all names of tags.
            Some(rest) => {
                let (_, rest) = rest.split_once(".format(")?;
                let (variable, _) = rest.split_once(')')?;
                assigned(template, variable.trim())
            }
        }
    }),
};

/// The text that a template assigns to a variable.
fn assigned<'a>(template: &'a str, variable: &str) -> Option<&'a str> {
    let mut places = template.match_indices("set ").map(|(at, text)| &template[at + text.len()..]);
    let value = places.find_map(|rest| {
        let rest = rest.trim_start().strip_prefix(variable)?.trim_start().strip_prefix('=')?;
        rest.trim_start().strip_prefix(['\'', '"'])
    })?;
    value.split(['\'', '"']).next()
}
