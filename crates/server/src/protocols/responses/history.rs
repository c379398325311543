//! The items of a conversation, and the messages that the template makes a prompt of.
//!
//! Invariant: the items of an answer give the messages that the answer was, its reasoning and the
//! names of its calls included, so that its tokens are found in the cache.

use crate::protocols::responses::items::{MessagePart, OutputItem, Passage};
use crate::protocols::responses::tools::{INPUT, flat};
use api::{Message, Part, Role, ToolCall};
use serde_json::{Value, json};
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

    fn called(&self) -> ToolCall {
        let arguments = match self.custom {
            true => json!({ (INPUT): self.input }),
            false => api::arguments(&self.input),
        };
        let name = flat(self.namespace.as_deref(), &self.name);
        ToolCall { id: Some(self.call_id.clone()), name, arguments, ..ToolCall::default() }
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
) -> Vec<Message> {
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
    messages: Vec<Message>,
    /// The message of the assistant that may go on.
    open: Option<Message>,
    /// Names of the functions that were called.
    called: HashMap<&'a str, String>,
}

impl<'a> Renderer<'a> {
    fn add(&mut self, item: &'a Item) {
        match item {
            Item::Message { role: ItemRole::Assistant, texts, .. } => {
                self.assistant(&texts.join("\n"));
            }
            Item::Message { role: ItemRole::User, texts, .. } => {
                self.push(Message::user(texts.join("\n")));
            }
            Item::Message { texts, .. } => self.system(&texts.join("\n")),
            Item::Reasoning { text, .. } => {
                let begun = |open: &Message| !open.content.is_empty() || !open.calls.is_empty();
                if self.open.as_ref().is_some_and(begun) {
                    self.flush();
                }
                self.open().reasoning.get_or_insert_default().push_str(text);
            }
            Item::Call(call) => {
                let called = call.called();
                self.called.insert(&call.call_id, called.name.clone());
                self.open().calls.push(called);
            }
            Item::Result { call_id, text, .. } => {
                let name = self.called.get(call_id.as_str()).cloned();
                let call_id = Some(call_id.clone());
                self.push(Message { call_id, name, ..Message::new("tool", text) });
            }
        }
    }

    /// The message of the assistant that may go on, a new one where there is none.
    fn open(&mut self) -> &mut Message {
        self.open.get_or_insert_with(|| Message { role: Role::Assistant, ..Message::default() })
    }

    /// Text beside calls is one message with them; after other text it is a message of its own.
    fn assistant(&mut self, text: &str) {
        let said = |open: &Message| !open.content.is_empty() && open.calls.is_empty();
        if self.open.as_ref().is_some_and(said) {
            self.flush();
        }
        append(&mut self.open().content, text);
    }

    /// Templates know one system message at the beginning, and some no other.
    fn system(&mut self, text: &str) {
        if self.open.is_none()
            && let [first @ Message { role: Role::System, .. }] = self.messages.as_mut_slice()
        {
            append(&mut first.content, &format!("\n\n{text}"));
            return;
        }
        self.push(Message::system(text));
    }

    fn push(&mut self, message: Message) {
        self.flush();
        self.messages.push(message);
    }

    fn flush(&mut self) {
        let Some(mut message) = self.open.take() else { return };
        append(&mut message.content, "");
        message.reasoning = message.reasoning.filter(|text| !text.is_empty());
        self.messages.push(message);
    }
}

/// Adds `text` to the last text of `content`.
fn append(content: &mut Vec<Part>, text: &str) {
    match content.last_mut() {
        Some(Part::Text(last)) => last.push_str(text),
        None => content.push(Part::Text(text.to_owned())),
    }
}
