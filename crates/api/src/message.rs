//! Messages and tools of a conversation, independent of protocols.

use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use text::closed_object;

/// The author of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Instructions.
    System,
    /// The user.
    #[default]
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
    /// A role that only some templates know.
    Other(String),
}

impl Role {
    /// The name of the role in templates.
    pub fn name(&self) -> &str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for Role {
    fn from(name: &str) -> Self {
        match name {
            "system" => Self::System,
            "user" => Self::User,
            "assistant" => Self::Assistant,
            "tool" => Self::Tool,
            other => Self::Other(other.to_owned()),
        }
    }
}

/// A part of a message's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text. Templates get the texts of a message separated by line breaks.
    Text(String),
}

/// One message of a conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// The author.
    pub role: Role,
    /// The content; may be empty.
    pub content: Vec<Part>,
    /// The reasoning before the content.
    pub reasoning: Option<String>,
    /// Tool calls of the model.
    pub calls: Vec<ToolCall>,
    /// The id of the call that this message is the result of.
    pub call_id: Option<String>,
    /// Name of the speaker or of the tool.
    pub name: Option<String>,
    /// Further members, available to templates.
    pub extra: Map<String, Value>,
}

impl Message {
    /// Creates a message with a text.
    pub fn new(role: &str, content: impl Into<String>) -> Self {
        let content = vec![Part::Text(content.into())];
        Self { role: role.into(), content, ..Self::default() }
    }

    /// Creates a system message.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// Creates a user message.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// Creates a message of the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }

    /// Adds to the last text of the content.
    pub(crate) fn push_text(&mut self, text: &str) {
        match self.content.last_mut() {
            Some(Part::Text(last)) => last.push_str(text),
            None => self.content.push(Part::Text(text.to_owned())),
        }
    }

    /// The text of the content, parts separated by line breaks; `None` without content.
    pub fn text(&self) -> Option<String> {
        let texts: Vec<&str> = self.content.iter().map(|Part::Text(text)| &**text).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }
}

/// Reads a message in the form of OpenAI's API. Arguments of calls are kept unparsed.
impl From<Value> for Message {
    fn from(message: Value) -> Self {
        let Value::Object(mut extra) = message else { return Self::default() };
        let content = match extra.shift_remove("content") {
            Some(Value::String(text)) => vec![Part::Text(text)],
            Some(Value::Array(parts)) => {
                let text =
                    |part: &Value| part["text"].as_str().or(part.as_str()).map(str::to_owned);
                parts.iter().filter_map(text).map(Part::Text).collect()
            }
            _ => Vec::new(),
        };
        let calls = match extra.shift_remove("tool_calls") {
            Some(Value::Array(calls)) => calls.into_iter().map(ToolCall::from).collect(),
            _ => Vec::new(),
        };
        let mut text = |name: &str| match extra.shift_remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let role = text("role").as_deref().unwrap_or_default().into();
        let (reasoning, call_id, name) =
            (text("reasoning_content"), text("tool_call_id"), text("name"));
        Self { role, content, reasoning, calls, call_id, name, extra }
    }
}

/// A tool call of the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolCall {
    /// Id of the call, to which its result refers.
    pub id: Option<String>,
    /// Name of the tool.
    pub name: String,
    /// The arguments: an object, or text that is not a valid object.
    pub arguments: Value,
    /// The call as the client sent it, with further members and their order, for templates.
    pub source: Map<String, Value>,
}

impl ToolCall {
    /// What identifies a call: id, name and arguments.
    pub(crate) fn key(&self) -> (&str, &str, &Value) {
        (self.id.as_deref().unwrap_or_default(), &self.name, &self.arguments)
    }

    /// The value that templates get; the arguments are an object unless `text_arguments`.
    pub(crate) fn json(&self, id: Option<String>, text_arguments: bool) -> Value {
        let mut call = self.source.clone();
        if let Some(id) = id {
            call.insert("id".into(), id.into());
        }
        call.insert("type".into(), "function".into());
        let function = call.entry("function").or_insert(Value::Null);
        if !function.is_object() {
            *function = json!({});
        }
        function["name"] = self.name.as_str().into();
        function["arguments"] = match &self.arguments {
            Value::String(text) if !text_arguments => arguments_object(text).into(),
            arguments => arguments.clone(),
        };
        call.into()
    }
}

/// An object for arguments that are not the text of one: the members that came, if the text is
/// cut, or else the text as a member.
fn arguments_object(text: &str) -> Map<String, Value> {
    let is_eof = |error: serde_json::Error| error.is_eof();
    let is_cut = text.trim_start().starts_with('{')
        && serde_json::from_str::<IgnoredAny>(text).is_err_and(is_eof);
    let came = is_cut.then(|| serde_json::from_str(&closed_object(text)).ok()).flatten();
    came.unwrap_or_else(|| Map::from_iter([("arguments".into(), text.into())]))
}

impl From<Value> for ToolCall {
    fn from(call: Value) -> Self {
        let Value::Object(source) = call else { return Self::default() };
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let function = source.get("function").cloned().unwrap_or_default();
        Self {
            id: text(source.get("id")),
            name: text(function.get("name")).unwrap_or_default(),
            arguments: function["arguments"].clone(),
            source,
        }
    }
}

/// A tool that the model may call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tool {
    /// The name.
    pub name: String,
    /// The description.
    pub description: Option<String>,
    /// JSON schema of the arguments, or null.
    pub parameters: Value,
    /// The arguments must match the schema.
    pub strict: bool,
    /// The tool as the client sent it; if set, templates get it instead of the other fields.
    pub source: Option<Value>,
}

impl Tool {
    /// The value that templates get.
    pub(crate) fn json(&self) -> Value {
        if let Some(source) = &self.source {
            return source.clone();
        }
        let mut function = json!({ "name": self.name });
        if let Some(description) = &self.description {
            function["description"] = description.as_str().into();
        }
        if !self.parameters.is_null() {
            function["parameters"] = self.parameters.clone();
        }
        if self.strict {
            function["strict"] = true.into();
        }
        json!({ "type": "function", "function": function })
    }
}

/// Reads a tool in the form of OpenAI's API, or its `function` member alone.
impl From<Value> for Tool {
    fn from(tool: Value) -> Self {
        let function = tool.get("function").unwrap_or(&tool);
        let text = |name: &str| function[name].as_str().map(str::to_owned);
        Self {
            name: text("name").unwrap_or_default(),
            description: text("description"),
            parameters: function["parameters"].clone(),
            strict: function["strict"] == true || tool["strict"] == true,
            source: Some(tool),
        }
    }
}
