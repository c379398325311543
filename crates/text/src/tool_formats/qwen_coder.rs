//! Qwen3-Coder: `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`
//!
//! Values are plain text. A value is a JSON string, written while it streams, where the schema of
//! the tool says so; another value is JSON if it is JSON of a type that the schema allows, else a
//! string.

use super::format::ToolFormat;
use super::syntax::{CallSyntax, ParameterSyntax};
use crate::call_reader::LiteralRole::{Close, Start};
use crate::call_reader::call::{Call, stated_types};
use crate::call_reader::json::{is_json, quoted};
use crate::call_reader::literals::{Literals, Scan};
use crate::call_reader::{CallReader, Flow};
use crate::think::THINK;

const FUNCTION: &str = "<function=";
const MEMBERS: [&str; 2] = ["<parameter=", "</function>"];
/// Literals that end a value. One line break on each side of a value belongs to the tags.
const CLOSE: [&str; 2] = ["\n</parameter>", "</parameter>"];

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
            end: CLOSE[1],
            escaped_end: None,
            key: |key| (!key.contains(['\n', '<', '>'])).then(|| key.to_owned()),
        }),
        ..CallSyntax::PLAIN
    },
    reader: |literal| Box::new(Coder::new(literal)),
    structure: None,
};

/// Reads one call.
#[derive(Debug)]
struct Coder {
    state: CoderState,
    literals: Literals,
    name: String,
    key: String,
    value: String,
    /// Whether no parameter has come yet.
    first: bool,
}

#[derive(Clone, Copy, Debug)]
enum CoderState {
    Begin,
    Name,
    Members,
    Key,
    /// Before the value, which is certain to be a string if `text`.
    Lead {
        text: bool,
    },
    Value {
        text: bool,
    },
}

impl CallReader for Coder {
    fn push(&mut self, c: char, call: &mut Call) -> Flow {
        match self.state {
            CoderState::Begin | CoderState::Members => self.tag(c, call),
            CoderState::Name => self.name(c, call),
            CoderState::Key => self.key(c, call),
            CoderState::Lead { text } => {
                self.state = CoderState::Value { text };
                if c == '\n' { Flow::More } else { self.value(c, text, call) }
            }
            CoderState::Value { text } => self.value(c, text, call),
        }
    }
}

impl Coder {
    fn new(literal: &str) -> Self {
        let state = if literal == FUNCTION { CoderState::Name } else { CoderState::Begin };
        Coder {
            state,
            literals: Literals::default(),
            name: String::new(),
            key: String::new(),
            value: String::new(),
            first: true,
        }
    }

    /// Takes white space and a tag.
    fn tag(&mut self, c: char, call: &mut Call) -> Flow {
        let begin = matches!(self.state, CoderState::Begin);
        let options: &[&str] = if begin { &[FUNCTION] } else { &MEMBERS };
        match self.literals.push(options.iter().copied(), c) {
            Scan::Partial => {}
            Scan::None if self.literals.is_empty() && c.is_whitespace() => {}
            Scan::None => return Flow::Refused,
            Scan::Whole(0) if begin => self.state = CoderState::Name,
            Scan::Whole(0) => {
                self.key.clear();
                self.state = CoderState::Key;
            }
            Scan::Whole(_) => {
                call.arguments("}");
                call.end();
                return Flow::Over;
            }
        }
        Flow::More
    }

    fn name(&mut self, c: char, call: &mut Call) -> Flow {
        if c != '>' {
            self.name.push(c);
            return if call.may_name(&self.name) { Flow::More } else { Flow::Refused };
        }
        if call.tool(&self.name).is_none() {
            return Flow::Refused;
        }
        call.start(&self.name);
        call.arguments("{");
        self.state = CoderState::Members;
        Flow::More
    }

    fn key(&mut self, c: char, call: &mut Call) -> Flow {
        match c {
            '\n' | '<' => return Flow::Refused,
            '>' => {
                let separator = if std::mem::take(&mut self.first) { "" } else { "," };
                let text = self.types(call) == ["string"];
                let quote = if text { "\"" } else { "" };
                call.arguments(&format!("{separator}{}:{quote}", quoted(&self.key)));
                self.state = CoderState::Lead { text };
            }
            _ => self.key.push(c),
        }
        Flow::More
    }

    fn value(&mut self, c: char, text: bool, call: &mut Call) -> Flow {
        let (read, closed) = self.literals.feed(CLOSE.into_iter(), c);
        match text {
            true => read.chars().for_each(|c| call.text_char(c)),
            false => self.value.push_str(&read),
        }
        if closed.is_some() {
            let value = std::mem::take(&mut self.value);
            call.arguments(&if text { "\"".to_owned() } else { self.typed(&value, call) });
            self.state = CoderState::Members;
        }
        Flow::More
    }

    /// Returns a value as JSON.
    fn typed(&self, value: &str, call: &Call) -> String {
        let types = self.types(call);
        let value_type = json_type(value.trim());
        let allowed = types.is_empty()
            || !types.contains(&"string")
            || types.contains(&value_type)
            || (value_type == "integer" && types.contains(&"number"));
        match is_json(value) && allowed {
            true => value.trim().to_owned(),
            false => quoted(value),
        }
    }

    /// Returns the types that the schema allows for the current parameter.
    fn types<'a>(&self, call: &'a Call) -> Vec<&'a str> {
        let tool = call.tool(&self.name);
        tool.map(|tool| stated_types(&tool.parameters, &self.key)).unwrap_or_default()
    }
}

/// Returns the name that schemas have for the type of a JSON text.
fn json_type(text: &str) -> &'static str {
    match text.chars().next() {
        Some('{') => "object",
        Some('[') => "array",
        Some('"') => "string",
        Some('t' | 'f') => "boolean",
        Some('n') => "null",
        _ if text.contains(['.', 'e', 'E']) => "number",
        _ => "integer",
    }
}
