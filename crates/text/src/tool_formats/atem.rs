//! `<|start|>assistant to=NAME<|message|><atem:function_calls>` around `<atem:invoke name="NAME">`,
//! each with `<atem:parameter name="KEY">VALUE</atem:parameter>`: Muse Glimmer.
//!
//! An answer is several messages. One to `self` is reasoning, one to the user is content, one to
//! anyone else has calls; calls in other messages are text. Strings, numbers, booleans and null are
//! written as they are, lists and objects as JSON. The prompt ends with the role, so an answer
//! begins with ` to=`.

use super::format::ToolFormat;
use super::messages::{Audience, CallBody, Mark, MessageForm, MessageReader, recipient};
use super::syntax::{AnswerSyntax, CallSyntax, MessageSyntax, ParameterSyntax};
use crate::call_reader::call::Call;
use crate::call_reader::tagged_calls::{CallTags, TaggedCalls};
use crate::call_reader::{CallReader, Flow};
use crate::think::THINK;
use std::borrow::Cow::Borrowed;

const BLOCK: &str = "<atem:function_calls>";

/// The format of Muse Glimmer.
pub static ATEM: ToolFormat = ToolFormat {
    name: "atem",
    detect: |template| template.contains(BLOCK),
    markers: &["<|start|>", "<|message|>", "<|eom|>", "<|eot|>"],
    literals: &[],
    closing: &[("</atem:function_calls>", true)],
    anywhere: false,
    thinking: THINK,
    writes: CallSyntax {
        before: " to=NAME<|message|><atem:function_calls>\n<atem:invoke name=\"NAME\">\n",
        after: "</atem:invoke>\n</atem:function_calls>",
        between: "<|eom|><|start|>assistant",
        parameters: Some(ParameterSyntax {
            text: "<atem:parameter name=\"KEY\">",
            json: "<atem:parameter name=\"KEY\">",
            close: "</atem:parameter>\n",
            end: "</atem:parameter>",
            escaped_end: None,
            key: |key| (!key.contains(['\n', '<', '"'])).then(|| key.to_owned()),
        }),
        answer: AnswerSyntax::Messages(&MessageSyntax {
            tokens: &["<|start|>", "<|message|>", "<|eom|>"],
            header: " to=",
            message: "<|message|>",
            next: "<|eom|><|start|>assistant",
            before: &["self"],
            answer: "user",
        }),
        ..CallSyntax::PLAIN
    },
    reader: |_| Box::new(MessageReader::new(&FORM)),
    structure: None,
    suffix: None,
};

static FORM: MessageForm = MessageForm {
    marks: &[
        ("<|start|>", Mark::Start),
        ("<|message|>", Mark::Body),
        ("<|eom|>", Mark::End),
        ("<|eot|>", Mark::Last),
    ],
    audience: |header| match recipient(header) {
        Some("self") => Audience::Itself,
        Some("user") | None => Audience::User,
        Some(name) => Audience::Tool(name),
    },
    // The names of calls count: recipients may be the part of a name before its point.
    call: |_, _| Some(Box::new(TaggedCalls::new(TAGS, ""))),
};

const TAGS: CallTags = CallTags {
    open: Borrowed(BLOCK),
    name: [Borrowed("<atem:invoke name=\""), Borrowed("\">")],
    key: [Borrowed("<atem:parameter name=\""), Borrowed("\">")],
    ends: [Borrowed("</atem:parameter>"), Borrowed("")],
    close: Borrowed("</atem:invoke>"),
    block: Borrowed("</atem:function_calls>"),
    ..CallTags::NONE
};

impl CallBody for TaggedCalls {
    fn push(&mut self, c: char, call: &mut Call) -> Flow {
        CallReader::push(self, c, call)
    }

    fn may_end(&self) -> bool {
        self.is_between()
    }
}
