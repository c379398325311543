//! The items of a conversation, and the messages that the template makes a prompt of.
//!
//! Invariant: the items of an answer give the messages that the answer was, its reasoning and the
//! names of its calls included, so that its tokens are found in the cache.

use crate::responses::items::{MessagePart, OutputItem, Passage};
use crate::responses::tools::{INPUT, flat};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// An item of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Message { id: String, role: ItemRole, texts: Vec<String> },
    Reasoning { id: String, text: String },
    Call(CallItem),
    Result { id: String, call_id: String, text: String, custom: bool },
}

/// A call that the model made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallItem {
    pub id: String,
    pub call_id: String,
    pub name: String,
    pub namespace: Option<String>,
    /// JSON text of arguments, or the text of a custom tool.
    pub input: String,
    pub custom: bool,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemRole {
    User,
    Assistant,
    System,
    Developer,
}

impl ItemRole {
    /// The role that OpenAI's API calls `name`.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "user" => Some(Self::User),
            "assistant" => Some(Self::Assistant),
            "system" => Some(Self::System),
            "developer" => Some(Self::Developer),
            _ => None,
        }
    }

    /// Its name there.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
            Self::Developer => "developer",
        }
    }
}

impl Item {
    /// Its id.
    pub fn id(&self) -> &str {
        match self {
            Self::Message { id, .. } | Self::Reasoning { id, .. } | Self::Result { id, .. } => id,
            Self::Call(call) => &call.id,
        }
    }

    /// About the bytes that it takes in memory.
    pub fn size(&self) -> usize {
        let texts = match self {
            Self::Message { texts, .. } => texts.iter().map(|text| 32 + text.len()).sum(),
            Self::Reasoning { text, .. } => text.len(),
            Self::Result { call_id, text, .. } => call_id.len() + text.len(),
            Self::Call(call) => {
                let namespace = call.namespace.as_ref().map_or(0, String::len);
                call.call_id.len() + call.name.len() + namespace + call.input.len()
            }
        };
        size_of::<Self>() + 64 + self.id().len() + texts
    }

    /// The form that it is listed in.
    pub fn json(&self) -> Value {
        match self {
            Self::Message { id, role, texts } => {
                let part = |text: &String| match role {
                    ItemRole::Assistant => {
                        json!({ "type": "output_text", "text": text, "annotations": [] })
                    }
                    _ => json!({ "type": "input_text", "text": text }),
                };
                let content: Vec<Value> = texts.iter().map(part).collect();
                json!({ "id": id, "type": "message", "role": role.name(), "content": content,
                        "status": "completed" })
            }
            Self::Reasoning { id, text } => {
                let content = json!([{ "type": "reasoning_text", "text": text }]);
                json!({ "id": id, "type": "reasoning", "summary": [], "content": content })
            }
            Self::Call(call) => call.json(),
            Self::Result { id, call_id, text, custom } => {
                let kind = if *custom { "custom_tool_call_output" } else { "function_call_output" };
                json!({ "id": id, "type": kind, "call_id": call_id, "output": text,
                        "status": "completed" })
            }
        }
    }
}

impl CallItem {
    fn json(&self) -> Value {
        let (kind, input) = match self.custom {
            true => ("custom_tool_call", "input"),
            false => ("function_call", "arguments"),
        };
        let mut json = json!({ "id": self.id, "type": kind, "call_id": self.call_id,
            "name": self.name, (input): self.input, "status": "completed" });
        if let Some(namespace) = &self.namespace {
            json["namespace"] = namespace.as_str().into();
        }
        json
    }

    fn message(&self) -> Value {
        let arguments = match self.custom {
            true => json!({ (INPUT): self.input }),
            false => api::arguments(&self.input),
        };
        let name = flat(self.namespace.as_deref(), &self.name);
        json!({ "id": self.call_id, "type": "function",
                "function": { "name": name, "arguments": arguments } })
    }
}

impl From<&OutputItem> for Item {
    fn from(item: &OutputItem) -> Self {
        match item {
            OutputItem::Reasoning(reasoning) => {
                let passages = reasoning.content.iter().chain(&reasoning.summary);
                let text = |passage: &Passage| match passage {
                    Passage::ReasoningText { text } | Passage::SummaryText { text } => text.clone(),
                };
                Self::Reasoning { id: reasoning.id.clone(), text: passages.map(text).collect() }
            }
            OutputItem::Message(message) => {
                let text = |part: &MessagePart| match part {
                    MessagePart::OutputText { text, .. } => text.clone(),
                };
                let texts = message.content.iter().map(text).collect();
                Self::Message { id: message.id.clone(), role: ItemRole::Assistant, texts }
            }
            OutputItem::FunctionCall(call) => Self::Call(CallItem {
                id: call.id.clone(),
                call_id: call.call_id.clone(),
                name: call.name.clone(),
                namespace: call.namespace.clone(),
                input: call.arguments.clone(),
                custom: false,
            }),
            OutputItem::CustomToolCall(call) => Self::Call(CallItem {
                id: call.id.clone(),
                call_id: call.call_id.clone(),
                name: call.name.clone(),
                namespace: call.namespace.clone(),
                input: call.input.clone(),
                custom: true,
            }),
        }
    }
}

/// The messages of a conversation that `instructions` open.
pub(crate) fn render<'a>(
    instructions: Option<&str>,
    items: impl Iterator<Item = &'a Item>,
) -> Vec<Value> {
    let mut renderer = Renderer::default();
    if let Some(text) = instructions.filter(|text| !text.is_empty()) {
        renderer.system(text);
    }
    for item in items {
        renderer.add(item);
    }
    renderer.flush();
    renderer.messages
}

#[derive(Default)]
struct Renderer<'a> {
    messages: Vec<Value>,
    /// The message of the assistant that may go on.
    open: Option<OpenTurn>,
    /// Names of the functions that were called.
    called: HashMap<&'a str, String>,
}

/// What the assistant said between two others.
#[derive(Default)]
struct OpenTurn {
    reasoning: String,
    content: Option<String>,
    calls: Vec<Value>,
}

impl<'a> Renderer<'a> {
    fn add(&mut self, item: &'a Item) {
        match item {
            Item::Message { role: ItemRole::Assistant, texts, .. } => {
                self.assistant(&texts.join("\n"))
            }
            Item::Message { role: ItemRole::User, texts, .. } => {
                self.push(json!({ "role": "user", "content": texts.join("\n") }));
            }
            Item::Message { texts, .. } => self.system(&texts.join("\n")),
            Item::Reasoning { text, .. } => {
                if self.open.as_ref().is_some_and(|turn| turn.content.is_some() || turn.called()) {
                    self.flush();
                }
                self.open.get_or_insert_default().reasoning.push_str(text);
            }
            Item::Call(call) => {
                let message = call.message();
                let name = flat(call.namespace.as_deref(), &call.name);
                self.called.insert(&call.call_id, name);
                self.open.get_or_insert_default().calls.push(message);
            }
            Item::Result { call_id, text, .. } => {
                let mut message = json!({ "role": "tool", "tool_call_id": call_id });
                if let Some(name) = self.called.get(call_id.as_str()) {
                    message["name"] = name.as_str().into();
                }
                message["content"] = text.as_str().into();
                self.push(message);
            }
        }
    }

    /// Text beside calls is one message with them; after other text it is a message of its own.
    fn assistant(&mut self, text: &str) {
        if self.open.as_ref().is_some_and(|turn| turn.content.is_some() && !turn.called()) {
            self.flush();
        }
        let turn = self.open.get_or_insert_default();
        turn.content.get_or_insert_default().push_str(text);
    }

    /// Templates know one system message at the beginning, and some no other.
    fn system(&mut self, text: &str) {
        if self.open.is_none()
            && let [first] = self.messages.as_mut_slice()
            && first["role"] == "system"
            && let Some(Value::String(content)) = first.get_mut("content")
        {
            content.push_str("\n\n");
            content.push_str(text);
            return;
        }
        self.push(json!({ "role": "system", "content": text }));
    }

    fn push(&mut self, message: Value) {
        self.flush();
        self.messages.push(message);
    }

    fn flush(&mut self) {
        self.messages.extend(self.open.take().map(OpenTurn::message));
    }
}

impl OpenTurn {
    fn called(&self) -> bool {
        !self.calls.is_empty()
    }

    fn message(self) -> Value {
        let mut message = Map::new();
        message.insert("role".into(), "assistant".into());
        message.insert("content".into(), self.content.unwrap_or_default().into());
        if !self.reasoning.is_empty() {
            message.insert("reasoning_content".into(), self.reasoning.into());
        }
        if !self.calls.is_empty() {
            message.insert("tool_calls".into(), self.calls.into());
        }
        message.into()
    }
}
