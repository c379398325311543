//! The item of an answer that is being generated, and the events about it.

use crate::generate::logprobs;
use crate::http::sse::Frame;
use crate::protocols::freeform::Freeform;
use crate::protocols::responses::history::{CallItem, Item};
use crate::protocols::responses::object::{
    Assistant, CompactionItem, ItemStatus, MessageItem, MessagePart, OutputItem, Passage, Reasoning,
};
use crate::protocols::responses::tools::CallKind;
use crate::protocols::sealed::sealed;
use api::{Delta, TokenText};
use serde_json::{Value, json};
use std::cell::Cell;

/// What the client wants to see.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ItemView {
    /// Reasoning as a summary too. Its events are those of the summary alone, since clients that
    /// know both kinds of events would show the text twice.
    pub summaries: bool,
    /// Reasoning in a form that only this server reads.
    pub sealed: bool,
    /// Log probabilities of the text.
    pub logprobs: bool,
    /// No item: the prompt alone is computed, for the next turn.
    pub nothing: bool,
    /// One item, a summary of the conversation.
    pub compacts: bool,
}

/// The events of one stream, which are numbered, and what they show.
#[derive(Debug)]
pub(crate) struct Events {
    pub view: ItemView,
    next: Cell<u64>,
    frames: Vec<Frame>,
}

impl Events {
    /// The events of a stream that begins.
    pub fn new(view: ItemView) -> Self {
        Self { view, next: Cell::default(), frames: Vec::new() }
    }

    /// The next event, of this type and with these members.
    pub fn event(&self, kind: &str, mut members: Value) -> Frame {
        let number = self.next.replace(self.next.get() + 1);
        let mut event = json!({ "type": kind, "sequence_number": number });
        if let (Some(event), Some(members)) = (event.as_object_mut(), members.as_object_mut()) {
            event.append(members);
        }
        Frame::typed(event)
    }

    /// Adds the next event.
    pub fn add(&mut self, kind: &str, members: Value) {
        let event = self.event(kind, members);
        self.frames.push(event);
    }

    /// Removes the events that were added, and returns them.
    pub fn take(&mut self) -> Vec<Frame> {
        std::mem::take(&mut self.frames)
    }
}

/// The names in the events about the text of an item.
#[derive(Debug)]
struct TextEvents {
    /// The events' own name, without `.delta` and `.done`.
    name: &'static str,
    /// The member of the last one that holds the whole text.
    whole: &'static str,
    /// The list of the item that has the text as its part, and the name of the events about that.
    part: Option<(&'static str, &'static str)>,
}

const SUMMARY: TextEvents = TextEvents {
    name: "response.reasoning_summary_text",
    whole: "text",
    part: Some(("summary", "response.reasoning_summary_part")),
};
const REASONING: TextEvents = TextEvents {
    name: "response.reasoning_text",
    whole: "text",
    part: Some(("content", "response.content_part")),
};
const MESSAGE: TextEvents = TextEvents { name: "response.output_text", ..REASONING };
const FUNCTION: TextEvents =
    TextEvents { name: "response.function_call_arguments", whole: "arguments", part: None };
const CUSTOM: TextEvents =
    TextEvents { name: "response.custom_tool_call_input", whole: "input", part: None };

/// An item that is being generated.
#[derive(Debug)]
pub(crate) struct OpenItem {
    /// Its index in the answer.
    index: usize,
    /// The item without its text.
    item: Item,
    text: String,
    logprobs: Vec<Value>,
    /// `None` where no events tell the text.
    names: Option<&'static TextEvents>,
    /// The number of the call that it is.
    pub call: Option<usize>,
    /// Reads the arguments of a custom tool.
    freeform: Freeform,
}

impl OpenItem {
    /// Begins with `item`, which has no text yet. If it is a call, `call` is the call's number.
    pub fn begin(index: usize, item: Item, call: Option<usize>, events: &mut Events) -> Self {
        let names = match &item {
            Item::Reasoning { .. } if events.view.summaries => Some(&SUMMARY),
            Item::Reasoning { .. } => Some(&REASONING),
            Item::Call(CallItem { kind: CallKind::Custom, .. }) => Some(&CUSTOM),
            Item::Call(CallItem { kind: CallKind::Function, .. }) => Some(&FUNCTION),
            Item::Message { .. } => Some(&MESSAGE),
            _ => None,
        };
        let (text, logprobs, freeform) = Default::default();
        let open = Self { index, item, text, logprobs, names, call, freeform };
        let added = open.shown(ItemStatus::InProgress, events.view);
        events.add("response.output_item.added", json!({ "output_index": index, "item": added }));
        open.part("added", events);
        open
    }

    /// Whether it is reasoning.
    pub fn is_reasoning(&self) -> bool {
        matches!(self.item, Item::Reasoning { .. })
    }

    /// More of its text, or of the arguments of its call.
    pub fn push(&mut self, delta: Delta, events: &mut Events) {
        let text = match &self.item {
            Item::Call(call) if call.kind == CallKind::Custom => self.freeform.push(&delta.text),
            _ => delta.text,
        };
        self.add(text, &delta.tokens, events);
    }

    fn add(&mut self, text: String, tokens: &[TokenText], events: &mut Events) {
        if self.call.is_some() && text.is_empty() {
            return;
        }
        self.text.push_str(&text);
        let tokens = if events.view.logprobs { logprobs::chat(tokens) } else { Vec::new() };
        let tokens: Vec<Value> = tokens.iter().map(|token| json!(token)).collect();
        self.logprobs.extend_from_slice(&tokens);
        self.event("delta", "delta", &text, &tokens, events);
    }

    /// Ends it: returns the item as the client sees it, and the item to be stored.
    pub fn end(mut self, status: ItemStatus, events: &mut Events) -> (OutputItem, Item) {
        if let Item::Call(CallItem { kind: CallKind::Custom, .. }) = self.item {
            let rest = std::mem::take(&mut self.freeform).finish(&self.text);
            self.add(rest, &[], events);
        }
        let whole = self.names.map_or("", |names| names.whole);
        self.event("done", whole, &self.text, &self.logprobs, events);
        self.part("done", events);
        let item = self.shown(status, events.view);
        let done = json!({ "output_index": self.index, "item": item });
        events.add("response.output_item.done", done);
        (item, self.item())
    }

    /// Adds the event `kind` about the text, with `text` as its member `name`.
    fn event(&self, kind: &str, name: &str, text: &str, logprobs: &[Value], events: &mut Events) {
        let Some(names) = self.names else { return };
        let mut members = self.members();
        members[name] = text.into();
        if let Item::Message { .. } = self.item {
            members["logprobs"] = logprobs.into();
        }
        events.add(&format!("{}.{kind}", names.name), members);
    }

    /// Adds the event `kind` about the part that holds the text, if there are parts.
    fn part(&self, kind: &str, events: &mut Events) {
        let Some((list, name)) = self.names.and_then(|names| names.part) else { return };
        let mut members = self.members();
        members["part"] = json!(self.shown(ItemStatus::Completed, events.view))[list][0].take();
        events.add(&format!("{name}.{kind}"), members);
    }

    /// The members that say which item and part an event is about.
    fn members(&self) -> Value {
        let mut members = json!({ "item_id": self.item.id(), "output_index": self.index });
        if let Some((list, _)) = self.names.and_then(|names| names.part) {
            members[format!("{list}_index")] = 0.into();
        }
        members
    }

    /// The item with its text.
    fn item(&self) -> Item {
        let mut item = self.item.clone();
        match &mut item {
            Item::Message { texts, .. } => texts.push(self.text.clone()),
            Item::Reasoning { text, .. }
            | Item::Call(CallItem { input: text, .. })
            | Item::Compaction { summary: text, .. }
            | Item::Result { text, .. } => text.clone_from(&self.text),
            Item::Tools(_) | Item::Configuration(_) => {}
        }
        item
    }

    /// The item as the client sees it, which has no parts before its first one is announced.
    fn shown(&self, status: ItemStatus, view: ItemView) -> OutputItem {
        let begun = status != ItemStatus::InProgress;
        match self.item() {
            Item::Reasoning { id, text } => {
                let encrypted_content = (begun && view.sealed).then(|| sealed(&text));
                let (mut summary, mut content) = (Vec::new(), Vec::new());
                if begun && view.summaries {
                    summary.push(Passage::SummaryText { text: text.clone() });
                }
                if begun {
                    content.push(Passage::ReasoningText { text });
                }
                OutputItem::Reasoning(Reasoning { id, summary, content, encrypted_content, status })
            }
            Item::Call(call) => call.shown(status),
            Item::Compaction { id, summary } if begun => OutputItem::compaction(&id, &summary),
            Item::Compaction { id, .. } => {
                OutputItem::Compaction(CompactionItem { id, encrypted_content: String::new() })
            }
            // An answer has no other items.
            item => {
                let id = item.id().to_owned();
                let (text, logprobs) = (self.text.clone(), self.logprobs.clone());
                let part = MessagePart::OutputText { text, annotations: [], logprobs };
                let content = if begun { vec![part] } else { Vec::new() };
                OutputItem::Message(MessageItem { id, status, role: Assistant::Assistant, content })
            }
        }
    }
}
