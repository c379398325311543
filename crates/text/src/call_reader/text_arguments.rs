//! Arguments that a model writes as plain text, one by one.
//!
//! A value is a JSON string, written while it streams, where the schema of the tool says so;
//! another value is JSON if it is JSON of a type that the schema allows, else a string.

use super::call::{Call, stated_types};
use super::json::{is_json, quoted};

/// Writes the arguments of one call after the other.
#[derive(Debug, Default)]
pub(crate) struct TextArguments {
    /// The name of the tool.
    tool: String,
    value: TextValue,
    /// Whether the call has an argument.
    begun: bool,
}

impl TextArguments {
    /// Begins a call of the known tool `name`.
    pub fn start(&mut self, name: &str, call: &mut Call) {
        *self = Self { tool: name.to_owned(), ..Self::default() };
        call.start(name);
        call.arguments("{");
    }

    /// Begins an argument.
    pub fn key(&mut self, key: &str, call: &mut Call) {
        let separator = if std::mem::replace(&mut self.begun, true) { "," } else { "" };
        call.arguments(&format!("{separator}{}:", quoted(key)));
        let tool = call.tool(&self.tool);
        let types = tool.map(|tool| stated_types(&tool.parameters, key)).unwrap_or_default();
        self.value = TextValue::of(&types);
        self.value.begin(call);
    }

    /// Takes more of the value.
    pub fn push(&mut self, text: &str, call: &mut Call) {
        self.value.push(text, call);
    }

    /// Ends the value.
    pub fn close(&mut self, call: &mut Call) {
        self.value.close(call);
    }

    /// Ends the call.
    pub fn end(&mut self, call: &mut Call) {
        call.arguments("}");
        call.end();
    }
}

/// Writes one value.
#[derive(Debug, Default)]
pub(crate) struct TextValue {
    /// The types that the schema states; none if it states none.
    types: Vec<String>,
    /// The text so far, unless the value is certain to be a string.
    text: String,
}

impl TextValue {
    /// A value of one of `types`, or of any type if there are none.
    pub fn of(types: &[&str]) -> Self {
        let types = types.iter().map(|&name| name.to_owned()).collect();
        Self { types, text: String::new() }
    }

    /// Begins the value.
    pub fn begin(&self, call: &mut Call) {
        call.arguments(if self.is_text() { "\"" } else { "" });
    }

    /// Takes more of the text.
    pub fn push(&mut self, text: &str, call: &mut Call) {
        match self.is_text() {
            true => text.chars().for_each(|c| call.text_char(c)),
            false => self.text.push_str(text),
        }
    }

    /// Ends the value.
    pub fn close(&mut self, call: &mut Call) {
        match self.is_text() {
            true => call.arguments("\""),
            false => call.arguments(&self.typed()),
        }
        self.text.clear();
    }

    /// Whether the value is certain to be a string.
    pub fn is_text(&self) -> bool {
        self.types == ["string"]
    }

    /// Returns the value as JSON.
    fn typed(&self) -> String {
        let may_be = |name: &str| self.types.iter().any(|known| known == name);
        let value = self.text.trim();
        let found = json_type(value);
        let allowed = self.types.is_empty()
            || !may_be("string")
            || may_be(found)
            || (found == "integer" && may_be("number"));
        match is_json(&self.text) && allowed {
            true => value.to_owned(),
            false => quoted(&self.text),
        }
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
