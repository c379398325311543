//! `<|tool_call_start|>[NAME(KEY="VALUE", ..), ..]<|tool_call_end|>`: LFM2 and later.
//!
//! Calls are written as in Python, or as a list of JSON objects, which grammars write and which is
//! read too. Strings come out while they stream, other values when they end.

use super::format::ToolFormat;
use super::python::{PythonString, StringStep, json_of};
use super::syntax::CallSyntax;
use crate::call_reader::LiteralRole::{Close, Start};
use crate::call_reader::call::Call;
use crate::call_reader::json::quoted;
use crate::call_reader::json_calls::{JsonCalls, JsonStart};
use crate::call_reader::{CallReader, Flow};
use crate::think::THINK;

const BEGIN: &str = "<|tool_call_start|>";
const CLOSE: &str = "<|tool_call_end|>";

/// The format of LFM2 and later.
pub static LFM: ToolFormat = ToolFormat {
    name: "lfm",
    detect: |template| template.contains(BEGIN),
    markers: &[BEGIN, CLOSE],
    literals: &[(BEGIN, Start), (CLOSE, Close)],
    closing: &[("]", false), (CLOSE, true)],
    anywhere: true,
    thinking: THINK,
    writes: CallSyntax {
        open: "<|tool_call_start|>[",
        before: "{\"name\": \"NAME\", \"arguments\": ",
        after: "}",
        between: ", ",
        close: "]<|tool_call_end|>",
        ..CallSyntax::PLAIN
    },
    reader: |_| Box::new(PythonCalls::default()),
    structure: None,
    suffix: None,
};

/// Bytes of the name of an argument.
const MAX_KEY: usize = 256;

/// Reads a list of calls.
#[derive(Debug, Default)]
struct PythonCalls {
    state: PythonState,
    /// The name of the tool or of the argument, or the value, so far.
    text: String,
    /// Brackets that are open in the value.
    depth: usize,
    /// The string that the value is within.
    string: Option<PythonString>,
    /// Whether the call has an argument.
    begun: bool,
    called: bool,
}

#[derive(Debug, Default)]
enum PythonState {
    /// Before the list.
    #[default]
    Start,
    /// Before a call.
    Item,
    Name,
    Json(JsonCalls),
    /// After a call.
    After,
    Key,
    /// Before a value.
    Lead,
    /// In a string that is a value.
    Text(PythonString),
    Value,
    /// After a value.
    Member,
}

impl CallReader for PythonCalls {
    fn push(&mut self, c: char, call: &mut Call) -> Flow {
        self.step(c, call).unwrap_or(Flow::Refused)
    }

    /// The end of the list may be cut off or left out.
    fn finish(&mut self, truncated: bool, call: &mut Call) -> bool {
        match &mut self.state {
            PythonState::Json(calls) => calls.finish(truncated, call),
            PythonState::After | PythonState::Item => self.called,
            _ => false,
        }
    }
}

impl PythonCalls {
    /// Takes the next character; `None` if it cannot follow.
    fn step(&mut self, c: char, call: &mut Call) -> Option<Flow> {
        match &mut self.state {
            PythonState::Json(calls) => match calls.push(c, call) {
                Flow::Over => self.end(),
                flow => return Some(flow),
            },
            PythonState::Text(_) => self.string(c, call)?,
            PythonState::Value => self.value(c, call)?,
            PythonState::Name => self.name(c, call)?,
            PythonState::Key => self.key(c, call)?,
            _ if c.is_whitespace() => {}
            PythonState::Start => {
                (c == '[').then_some(())?;
                self.state = PythonState::Item;
            }
            PythonState::Item if c == '{' => {
                let calls = JsonCalls::new(JsonStart::Inside, true);
                self.state = PythonState::Json(calls);
            }
            PythonState::Item if c == ']' => return self.called.then_some(Flow::Over),
            PythonState::Item => {
                self.text.clear();
                self.state = PythonState::Name;
                self.name(c, call)?;
            }
            PythonState::After => match c {
                ',' => self.state = PythonState::Item,
                _ => return (c == ']').then_some(Flow::Over),
            },
            PythonState::Lead => self.lead(c, call)?,
            PythonState::Member => self.member(c, call)?,
        }
        Some(Flow::More)
    }

    /// Takes the end of a call.
    fn end(&mut self) {
        self.called = true;
        self.state = PythonState::After;
    }

    fn name(&mut self, c: char, call: &mut Call) -> Option<()> {
        if c != '(' {
            self.text.push(c);
            return call.may_name(self.text.trim_end()).then_some(());
        }
        let name = self.text.trim_end();
        call.tool(name)?;
        call.start(name);
        call.arguments("{");
        self.begun = false;
        self.open();
        Some(())
    }

    /// Prepares for an argument.
    fn open(&mut self) {
        self.text.clear();
        self.state = PythonState::Key;
    }

    fn key(&mut self, c: char, call: &mut Call) -> Option<()> {
        match c {
            ')' if self.text.trim().is_empty() => {
                call.arguments("}");
                call.end();
                self.end();
            }
            '=' => {
                let key = self.text.trim();
                (!key.is_empty()).then_some(())?;
                let separator = if std::mem::replace(&mut self.begun, true) { "," } else { "" };
                call.arguments(&format!("{separator}{}:", quoted(key)));
                self.text.clear();
                self.depth = 0;
                self.state = PythonState::Lead;
            }
            _ => {
                let fits = c.is_alphanumeric() || "_-.$".contains(c) || c.is_whitespace();
                (fits && self.text.len() < MAX_KEY).then_some(())?;
                self.text.push(c);
            }
        }
        Some(())
    }

    /// Takes the first character of a value.
    fn lead(&mut self, c: char, call: &mut Call) -> Option<()> {
        if let Some(string) = PythonString::begun(c) {
            call.arguments("\"");
            self.state = PythonState::Text(string);
            return Some(());
        }
        self.state = PythonState::Value;
        self.value(c, call)
    }

    /// Takes a character of a string that is a value.
    fn string(&mut self, c: char, call: &mut Call) -> Option<()> {
        let PythonState::Text(string) = &mut self.state else { return None };
        match string.push(c)? {
            StringStep::More(text) => text.chars().for_each(|c| call.text_char(c)),
            StringStep::Over => {
                call.arguments("\"");
                self.state = PythonState::Member;
            }
        }
        Some(())
    }

    /// Takes a character of another value, or the one that ends it.
    fn value(&mut self, c: char, call: &mut Call) -> Option<()> {
        if let Some(string) = &mut self.string {
            if string.push(c)? == StringStep::Over {
                self.string = None;
            }
        } else if self.depth == 0 && matches!(c, ',' | ')') {
            call.arguments(&json_of(&self.text)?);
            self.state = PythonState::Member;
            return self.member(c, call);
        } else {
            self.string = PythonString::begun(c);
            match c {
                '[' | '{' | '(' => self.depth += 1,
                ']' | '}' | ')' => self.depth = self.depth.checked_sub(1)?,
                _ => {}
            }
        }
        self.text.push(c);
        Some(())
    }

    /// Takes what follows a value.
    fn member(&mut self, c: char, call: &mut Call) -> Option<()> {
        match c {
            ',' => self.open(),
            ')' => {
                self.text.clear();
                self.key(c, call)?;
            }
            _ => return None,
        }
        Some(())
    }
}
