//! Messages and tools of a conversation, as the readers of all protocols make them.

use serde_json::{Map, Value, json};

/// Who a message is from.
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
    /// The name that templates have for it.
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
    /// Text. Templates read the texts of a message on lines of their own.
    Text(String),
}

/// One message of a conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// Who it is from.
    pub role: Role,
    /// Its content; empty where there is none.
    pub content: Vec<Part>,
    /// What the model thought before it.
    pub reasoning: Option<String>,
    /// Tool calls that the model made.
    pub calls: Vec<ToolCall>,
    /// The id of the call whose result this is.
    pub call_id: Option<String>,
    /// Name of the speaker or of the tool.
    pub name: Option<String>,
    /// Further members, which templates may read.
    pub extra: Map<String, Value>,
}

impl Message {
    /// A message of `role` with this text.
    pub fn new(role: &str, content: impl Into<String>) -> Self {
        let content = vec![Part::Text(content.into())];
        Self { role: role.into(), content, ..Self::default() }
    }

    /// Instructions that come before the conversation.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// A message of the user.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// An answer of the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }

    /// The text of its content, one line for each part; `None` where there is no content.
    pub fn text(&self) -> Option<String> {
        let texts: Vec<&str> = self.content.iter().map(|Part::Text(text)| &**text).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }
}

/// A message in the form of OpenAI's API. Arguments of calls are kept as they are.
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

/// A tool call that the model made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolCall {
    /// Its id; results refer to it.
    pub id: Option<String>,
    /// Name of the tool.
    pub name: String,
    /// An object, or the text that should have been one.
    pub arguments: Value,
    /// The call as its client wrote it: members that templates may read too, and their order.
    pub source: Map<String, Value>,
}

impl ToolCall {
    /// What tells calls apart.
    pub(crate) fn key(&self) -> (&str, &str, &Value) {
        (self.id.as_deref().unwrap_or_default(), &self.name, &self.arguments)
    }

    /// What templates read of it.
    pub(crate) fn json(&self, id: Option<String>) -> Value {
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
        function["arguments"] = self.arguments.clone();
        call.into()
    }
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
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// JSON schema of its arguments; null where there is none.
    pub parameters: Value,
    /// The arguments must match the schema.
    pub strict: bool,
    /// The tool as its client wrote it, which templates read in place of the other fields.
    pub source: Option<Value>,
}

impl Tool {
    /// What templates read of it.
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

/// A tool in the form of OpenAI's API, or its function alone.
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
