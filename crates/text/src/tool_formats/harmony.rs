//! `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{..}<|call|>`: gpt-oss.
//!
//! A message is a header with channel and recipient, a body, and an end. The channel `analysis` is
//! reasoning, a message to a known function is a call, every other channel is content.

use super::format::ToolFormat;
use super::messages::{Audience, CallBody, Mark, MessageForm, MessageReader, recipient};
use super::syntax::{AnswerSyntax, CallSyntax, MessageSyntax};
use crate::call_reader::Flow;
use crate::call_reader::call::{Call, NamedCall};
use crate::think::THINK;

/// The format of gpt-oss.
pub static HARMONY: ToolFormat = ToolFormat {
    name: "harmony",
    detect: |template| {
        let shown = template.contains(CHANNEL) && template.contains("<|message|>");
        shown && !template.contains("｜DSML｜")
    },
    markers: &[
        "<|start|>",
        CHANNEL,
        "<|constrain|>",
        "<|message|>",
        "<|end|>",
        "<|call|>",
        "<|return|>",
    ],
    literals: &[],
    closing: &[],
    anywhere: false,
    thinking: THINK,
    writes: CallSyntax {
        before: "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>",
        many: false,
        answer: AnswerSyntax::Messages(&MESSAGES),
        ..CallSyntax::PLAIN
    },
    reader: |_| Box::new(MessageReader::new(&FORM)),
    structure: None,
    suffix: None,
};

const CHANNEL: &str = "<|channel|>";

/// The messages of an answer.
pub(crate) static MESSAGES: MessageSyntax = MessageSyntax {
    tokens: &["<|start|>", CHANNEL, "<|message|>", "<|end|>"],
    header: CHANNEL,
    message: "<|message|>",
    next: "<|end|><|start|>assistant",
    before: &["analysis", "commentary"],
    answer: "final",
};

static FORM: MessageForm = MessageForm {
    marks: &[
        ("<|start|>", Mark::Start),
        (CHANNEL, Mark::Either),
        ("<|constrain|>", Mark::Part),
        ("<|message|>", Mark::Body),
        ("<|end|>", Mark::End),
        ("<|call|>", Mark::Last),
        ("<|return|>", Mark::End),
    ],
    audience: |header| match recipient(header) {
        Some(name) => Audience::Tool(name.strip_prefix("functions.").unwrap_or(name)),
        None if channel(header) == "analysis" => Audience::Itself,
        None => Audience::User,
    },
    call: |name, call| Some(Box::new(NamedCall::new(&call.tool(name)?.name))),
};

impl CallBody for NamedCall {
    fn push(&mut self, c: char, call: &mut Call) -> Flow {
        NamedCall::push(self, c, call).into()
    }
}

/// Returns the channel that a header names.
fn channel(header: &str) -> &str {
    let rest = header.split_once(CHANNEL).map_or("", |(_, rest)| rest);
    rest.trim_start().split(|c: char| c.is_whitespace() || c == '<').next().unwrap_or("")
}
