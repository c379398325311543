//! The items of a conversation, and the messages that the template makes a prompt of.
//!
//! Invariant: the items of an answer give the messages that the answer was, its reasoning and the
//! names of its calls included, so that its tokens are found in the cache.

use crate::generate::answer::members;
use crate::protocols::freeform::INPUT;
use crate::protocols::responses::object::{
    CompactionItem, CustomCall, FunctionCall, ItemStatus, OutputItem, SearchCall,
};
use crate::protocols::responses::settings::ConfigurationItem;
use crate::protocols::responses::tools::{CallKind, flat};
use crate::protocols::responses::tools_item::ToolsItem;
use crate::protocols::sealed::{SUMMARY, sealed};
use api::{Message, Part, Role, ToolCall};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// An item of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Message {
        id: String,
        role: Role,
        texts: Vec<String>,
    },
    Reasoning {
        id: String,
        text: String,
    },
    Call(CallItem),
    Result {
        id: String,
        call_id: String,
        text: String,
        custom: bool,
    },
    /// What stands for the conversation before it.
    Compaction {
        id: String,
        summary: String,
    },
    Tools(ToolsItem),
    Configuration(ConfigurationItem),
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
    pub kind: CallKind,
}

impl Item {
    /// The id of the item.
    pub fn id(&self) -> &str {
        match self {
            Self::Message { id, .. }
            | Self::Reasoning { id, .. }
            | Self::Result { id, .. }
            | Self::Compaction { id, .. } => id,
            Self::Call(call) => &call.id,
            Self::Tools(item) => &item.id,
            Self::Configuration(item) => &item.id,
        }
    }

    /// Approximate bytes of the item in memory.
    pub fn size(&self) -> usize {
        let texts = match self {
            Self::Message { texts, .. } => texts.iter().map(|text| 32 + text.len()).sum(),
            Self::Reasoning { text, .. } | Self::Compaction { summary: text, .. } => text.len(),
            Self::Result { call_id, text, .. } => call_id.len() + text.len(),
            Self::Call(call) => {
                let namespace = call.namespace.as_ref().map_or(0, String::len);
                call.call_id.len() + call.name.len() + namespace + call.input.len()
            }
            Self::Tools(item) => item.size(),
            Self::Configuration(item) => item.size(),
        };
        size_of::<Self>() + 64 + self.id().len() + texts
    }

    /// The JSON that lists the item.
    pub fn json(&self) -> Value {
        match self {
            Self::Message { id, role, texts } => {
                let part = |text: &String| match role {
                    Role::Assistant => {
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
            Self::Call(call) => json!(call.shown(ItemStatus::Completed)),
            Self::Compaction { id, summary } => json!(OutputItem::compaction(id, summary)),
            Self::Tools(item) => item.json(),
            Self::Configuration(item) => item.json(),
            Self::Result { id, call_id, text, custom } => {
                let kind = if *custom { "custom_tool_call_output" } else { "function_call_output" };
                json!({ "id": id, "type": kind, "call_id": call_id, "output": text,
                        "status": "completed" })
            }
        }
    }
}

impl OutputItem {
    /// The item that stands for a conversation with this `summary`.
    pub fn compaction(id: &str, summary: &str) -> Self {
        let (id, encrypted_content) = (id.to_owned(), sealed(summary));
        Self::Compaction(CompactionItem { id, encrypted_content })
    }
}

impl CallItem {
    /// The call as the client sees it.
    pub fn shown(&self, status: ItemStatus) -> OutputItem {
        let Self { id, call_id, name, namespace, input, kind } = self.clone();
        match kind {
            CallKind::Function => OutputItem::FunctionCall(FunctionCall {
                id,
                call_id,
                name,
                namespace,
                arguments: input,
                status,
            }),
            CallKind::Custom => OutputItem::CustomToolCall(CustomCall {
                id,
                call_id,
                name,
                namespace,
                input,
                status,
            }),
            CallKind::Search => OutputItem::ToolSearchCall(SearchCall {
                id,
                call_id,
                arguments: members(&input),
                execution: "client".into(),
                status,
            }),
        }
    }

    fn called(&self) -> ToolCall {
        let arguments = match self.kind {
            CallKind::Custom => json!({ (INPUT): self.input }),
            CallKind::Function | CallKind::Search => api::arguments(&self.input),
        };
        let name = flat(self.namespace.as_deref(), &self.name);
        ToolCall { id: Some(self.call_id.clone()), name, arguments, ..ToolCall::default() }
    }
}

/// The messages of a conversation that begins with `instructions`.
pub(crate) fn render(instructions: Option<&str>, items: &[Arc<Item>]) -> Vec<Message> {
    let mut renderer = Renderer::default();
    if let Some(text) = instructions.filter(|text| !text.is_empty()) {
        renderer.system(text);
    }
    items.iter().for_each(|item| renderer.add(item));
    let mut messages = renderer.messages;
    for answer in messages.iter_mut().filter(|message| message.role == Role::Assistant) {
        append(&mut answer.content, "");
        answer.reasoning = answer.reasoning.take().filter(|text| !text.is_empty());
    }
    messages
}

/// Whether an item outlives a summary of the conversation that it belongs to.
pub(crate) fn outlives_summary(item: &Item) -> bool {
    match item {
        Item::Message { role, .. } => *role != Role::Assistant,
        Item::Tools(_) | Item::Configuration(_) => true,
        Item::Reasoning { .. } | Item::Call(_) | Item::Result { .. } | Item::Compaction { .. } => {
            false
        }
    }
}

/// Removes the items that the last summary in `items` stands for.
pub(crate) fn without_summarized(items: &mut Vec<Arc<Item>>) {
    let is_summary = |item: &Arc<Item>| matches!(**item, Item::Compaction { .. });
    let Some(last) = items.iter().rposition(is_summary) else { return };
    let mut at = 0..;
    items.retain(|item| at.next() >= Some(last) || outlives_summary(item));
}

#[derive(Default)]
struct Renderer<'a> {
    messages: Vec<Message>,
    /// The last message is the assistant's, and the next item may continue it.
    open: bool,
    /// The last message holds a summary, and the user's next message continues it.
    summed: bool,
    /// Names of the functions that were called.
    called: HashMap<&'a str, String>,
}

impl<'a> Renderer<'a> {
    fn add(&mut self, item: &'a Item) {
        match item {
            Item::Message { role, texts, .. } => match (role, texts.join("\n")) {
                // Text and calls are one message; text after text is a message of its own.
                (Role::Assistant, text) => {
                    let said = |last: &Message| !last.content.is_empty() && last.calls.is_empty();
                    self.open &= !self.messages.last().is_some_and(said);
                    append(&mut self.assistant().content, &text);
                }
                (Role::User, text) => self.user(text),
                (_, text) => self.system(&text),
            },
            Item::Reasoning { text, .. } => {
                let begun = |last: &Message| !last.content.is_empty() || !last.calls.is_empty();
                self.open &= !self.messages.last().is_some_and(begun);
                self.assistant().reasoning.get_or_insert_default().push_str(text);
            }
            Item::Call(call) => {
                let called = call.called();
                self.called.insert(&call.call_id, called.name.clone());
                self.assistant().calls.push(called);
            }
            Item::Result { call_id, text, .. } => self.result(call_id, text.clone()),
            Item::Compaction { summary, .. } => self.summary(summary),
            Item::Tools(item) => {
                let call = item.search.as_ref().and_then(|search| search.call_id.as_deref());
                if let Some(call) = call.filter(|call| self.called.contains_key(call)) {
                    self.result(call, item.found());
                }
            }
            Item::Configuration(_) => {}
        }
    }

    fn result(&mut self, call_id: &str, text: String) {
        let name = self.called.get(call_id).cloned();
        let call_id = Some(call_id.to_owned());
        self.push(Message { call_id, name, ..Message::new("tool", text) });
    }

    fn user(&mut self, text: String) {
        match self.messages.last_mut().filter(|_| self.summed) {
            Some(last) => append(&mut last.content, &format!("\n\n{text}")),
            None => self.push(Message::user(text)),
        }
    }

    /// Adds a summary. It is one message with the user's messages beside it, since many templates
    /// want the user and the assistant to take turns.
    fn summary(&mut self, summary: &str) {
        let users = self.messages.iter().rev().take_while(|last| last.role == Role::User).count();
        let mut content = Vec::new();
        for message in self.messages.drain(self.messages.len() - users..) {
            let parts = message.content.iter().map(|Part::Text(text)| text.as_str());
            append(&mut content, &parts.chain(["\n\n"]).collect::<String>());
        }
        append(&mut content, &format!("{SUMMARY}{summary}"));
        self.push(Message { role: Role::User, content, ..Message::default() });
        self.summed = true;
    }

    /// The assistant's message that the next item may continue, or a new one.
    fn assistant(&mut self) -> &mut Message {
        if !self.open {
            self.push(Message { role: Role::Assistant, ..Message::default() });
            self.open = true;
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }

    /// Adds a system prompt. At the beginning it joins the one that is there, since some templates
    /// allow one system message only, and only there.
    fn system(&mut self, text: &str) {
        match self.messages.as_mut_slice() {
            [first @ Message { role: Role::System, .. }] => {
                append(&mut first.content, &format!("\n\n{text}"));
            }
            _ => self.push(Message::system(text)),
        }
    }

    fn push(&mut self, message: Message) {
        (self.open, self.summed) = (false, false);
        self.messages.push(message);
    }
}

/// Adds `text` to the last text of `content`.
pub(crate) fn append(content: &mut Vec<Part>, text: &str) {
    match content.last_mut() {
        Some(Part::Text(last)) => last.push_str(text),
        None => content.push(Part::Text(text.to_owned())),
    }
}
