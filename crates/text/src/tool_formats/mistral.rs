//! `[TOOL_CALLS]` before a JSON array, or before a name and `[ARGS]`: Mistral.

use super::format::ToolFormat;
use super::hermes::shows_tags;
use super::syntax::CallSyntax;
use crate::call_reader::LiteralRole::{Close, Next, Start};
use crate::call_reader::call::{Call, NamedCall};
use crate::call_reader::json_calls::{JsonCalls, JsonStart};
use crate::call_reader::literals::{Literals, Scan};
use crate::call_reader::{CallReader, Flow};
use crate::think::THINK_OR_BRACKETS;

/// The format of Mistral's models.
pub static MISTRAL: ToolFormat = ToolFormat {
    name: "mistral",
    detect: |template| template.contains("[TOOL_CALLS]") && !shows_tags(template),
    markers: &["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"],
    literals: &[("[TOOL_CALLS]", Start), ("{", Next), (",", Close), ("]", Close)],
    closing: &[("]", true)],
    anywhere: true,
    thinking: THINK_OR_BRACKETS,
    writes: CallSyntax {
        before: "[TOOL_CALLS]NAME[ARGS]",
        without: Some(("[ARGS]", &LIST)),
        ..CallSyntax::PLAIN
    },
    reader: |literal| Box::new(Mistral::new(literal)),
    structure: None,
    suffix: None,
};

/// The syntax of older models.
static LIST: CallSyntax = CallSyntax {
    open: "[TOOL_CALLS][",
    before: "{\"name\": \"NAME\", \"arguments\": ",
    after: "}",
    between: ", ",
    close: "]",
    ..CallSyntax::PLAIN
};

const PARTS: [&str; 3] = ["[ARGS]", "[CALL_ID]", "{"];

/// Reads after `[TOOL_CALLS]`, or a later object of an array.
#[derive(Debug)]
struct Mistral {
    state: MistralState,
    name: String,
    literals: Literals,
}

#[derive(Debug)]
enum MistralState {
    Start,
    Json(JsonCalls),
    Name,
    Id,
    Arguments(NamedCall),
}

impl CallReader for Mistral {
    fn push(&mut self, c: char, call: &mut Call) -> Flow {
        match &mut self.state {
            MistralState::Start if c.is_whitespace() => Flow::More,
            MistralState::Start if c == '[' || c == '{' => {
                let mut calls = JsonCalls::new(JsonStart::List, true);
                let flow = calls.push(c, call);
                self.state = MistralState::Json(calls);
                flow
            }
            MistralState::Start => {
                self.state = MistralState::Name;
                self.part(c, call)
            }
            MistralState::Json(calls) => calls.push(c, call),
            MistralState::Name | MistralState::Id => self.part(c, call),
            MistralState::Arguments(named) => named.push(c, call).into(),
        }
    }

    fn finish(&mut self, truncated: bool, call: &mut Call) -> bool {
        match &mut self.state {
            MistralState::Json(calls) => calls.finish(truncated, call),
            _ => false,
        }
    }
}

impl Mistral {
    fn new(literal: &str) -> Self {
        let state = match literal {
            "{" => MistralState::Json(JsonCalls::new(JsonStart::Inside, true)),
            _ => MistralState::Start,
        };
        Mistral { state, name: String::new(), literals: Literals::default() }
    }

    /// Takes a character of the name or of the id after it.
    fn part(&mut self, c: char, call: &mut Call) -> Flow {
        match self.literals.push(PARTS.into_iter(), c) {
            Scan::Partial => Flow::More,
            Scan::Whole(1) => {
                self.state = MistralState::Id;
                Flow::More
            }
            Scan::Whole(index) => self.arguments(index == 2, call),
            Scan::None if !self.literals.is_empty() => Flow::Refused,
            Scan::None if matches!(self.state, MistralState::Id) => Flow::More,
            Scan::None => {
                self.name.push(c);
                if call.may_name(self.name.trim_end()) { Flow::More } else { Flow::Refused }
            }
        }
    }

    /// Takes the end of the name, and the first brace of the arguments if they have `begun`.
    fn arguments(&mut self, begun: bool, call: &mut Call) -> Flow {
        let name = self.name.trim_end();
        if call.tool(name).is_none() {
            return Flow::Refused;
        }
        let mut named = NamedCall::new(name);
        let flow = if begun { named.push('{', call).into() } else { Flow::More };
        self.state = MistralState::Arguments(named);
        flow
    }
}
