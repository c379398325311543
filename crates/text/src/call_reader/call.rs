//! Events of an answer, and the call that readers write.

use super::json::{JsonObject, NotJson, Span, escape_into};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// Name of a tool and JSON schema of its parameters (`Value::Null` if it has none).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSignature {
    /// The name that calls use.
    pub name: String,
    /// The schema of the object that calls give.
    pub parameters: Value,
}

/// Returns the types that the schema of a tool states for a parameter; none if it states none. A
/// format that writes strings as they are does so where this is `["string"]`.
pub(crate) fn stated_types<'a>(parameters: &'a Value, parameter: &str) -> Vec<&'a str> {
    schema_types(&parameters["properties"][parameter])
}

/// Returns the types that a schema states; none if it states none.
pub(crate) fn schema_types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputEvent {
    /// More of the reasoning.
    Reasoning(String),
    /// More of the content.
    Content(String),
    /// A call of a known tool begins.
    CallStart {
        /// The name of the tool.
        name: String,
    },
    /// More of the JSON text of the arguments; the pieces of a call together are one JSON object,
    /// or the beginning of one if the answer is truncated before the end of the call.
    CallArguments(String),
    /// The call is complete.
    CallEnd,
    /// The call that was started broke off: its text follows as content.
    CallBroken,
}

/// The tools that may be called, the events of the answer, and whether a call is open.
#[derive(Debug)]
pub(crate) struct Call {
    tools: Arc<[ToolSignature]>,
    events: Vec<OutputEvent>,
    /// Whether a call has been started and not ended.
    pub open: bool,
    /// Number of calls that have ended.
    pub ended: usize,
}

impl Call {
    pub fn new(tools: Arc<[ToolSignature]>) -> Self {
        Call { tools, events: Vec::new(), open: false, ended: 0 }
    }

    /// Returns the events since the last call of this method.
    pub fn take_events(&mut self) -> Vec<OutputEvent> {
        std::mem::take(&mut self.events)
    }

    /// Returns the tool of this name.
    pub fn tool(&self, name: &str) -> Option<&ToolSignature> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Whether the name of some tool begins with `start`.
    pub fn may_name(&self, start: &str) -> bool {
        self.tools.iter().any(|tool| tool.name.starts_with(start))
    }

    /// Returns the length of the longest name of a tool, in bytes.
    pub fn max_name(&self) -> usize {
        self.tools.iter().map(|tool| tool.name.len()).max().unwrap_or(0)
    }

    pub fn content(&mut self, text: &str) {
        join_or(&mut self.events, text, OutputEvent::Content);
    }

    pub fn reasoning(&mut self, text: &str) {
        join_or(&mut self.events, text, OutputEvent::Reasoning);
    }

    pub fn start(&mut self, name: &str) {
        self.open = true;
        self.events.push(OutputEvent::CallStart { name: name.to_owned() });
    }

    pub fn arguments(&mut self, text: &str) {
        join_or(&mut self.events, text, OutputEvent::CallArguments);
    }

    pub fn argument_char(&mut self, c: char) {
        self.arguments(c.encode_utf8(&mut [0; 4]));
    }

    /// Writes a character of a string in the arguments, escaped.
    pub fn text_char(&mut self, c: char) {
        let mut escaped = String::new();
        escape_into(&mut escaped, c);
        self.arguments(&escaped);
    }

    pub fn end(&mut self) {
        self.open = false;
        self.ended += 1;
        self.events.push(OutputEvent::CallEnd);
    }

    /// Breaks the call, if one is open, and gives its text out as content.
    pub fn fail(&mut self, text: &str) {
        if std::mem::take(&mut self.open) {
            self.events.push(OutputEvent::CallBroken);
        }
        self.content(text);
    }
}

/// Adds text to the last event if it is of the same kind.
pub(crate) fn join_or(events: &mut Vec<OutputEvent>, text: &str, kind: fn(String) -> OutputEvent) {
    use OutputEvent::{CallArguments, Content, Reasoning};
    if text.is_empty() {
        return;
    }
    match (events.last_mut(), kind(String::new())) {
        (Some(Reasoning(last)), Reasoning(_))
        | (Some(Content(last)), Content(_))
        | (Some(CallArguments(last)), CallArguments(_)) => last.push_str(text),
        _ => events.push(kind(text.to_owned())),
    }
}

/// A call whose name stands before the bare object of its arguments.
#[derive(Debug)]
pub(crate) struct NamedCall {
    name: String,
    object: JsonObject,
}

impl NamedCall {
    /// A call of the known tool `name`.
    pub fn new(name: &str) -> Self {
        NamedCall { name: name.to_owned(), object: JsonObject::default() }
    }

    /// Takes a character of the arguments and returns whether the call is complete.
    ///
    /// # Errors
    /// If the character continues no JSON.
    pub fn push(&mut self, c: char, call: &mut Call) -> Result<bool, NotJson> {
        let span = self.object.push(c)?;
        if span == Span::Outside {
            return Ok(false);
        }
        if !call.open {
            call.start(&self.name);
        }
        call.argument_char(c);
        if span == Span::Last {
            call.end();
        }
        Ok(span == Span::Last)
    }
}
