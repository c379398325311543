//! The item of an answer that is being generated.

use crate::generate::logprobs;
use crate::http::random;
use crate::http::sse::Frame;
use crate::protocols::responses::events::Events;
use crate::protocols::responses::freeform::Freeform;
use crate::protocols::responses::input::sealed;
use crate::protocols::responses::items::{
    Assistant, CustomCall, FunctionCall, ItemStatus, MessageItem, MessagePart, OutputItem, Passage,
    Reasoning,
};
use crate::protocols::responses::tools::Wire;
use api::Delta;
use serde_json::{Value, json};

/// What the client wants to see.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ItemView {
    /// Reasoning as a summary.
    pub summaries: bool,
    /// Reasoning in a form that only this server reads.
    pub sealed: bool,
    /// Log probabilities of the text.
    pub logprobs: bool,
}

/// An item that is being generated.
#[derive(Debug)]
pub(crate) struct OpenItem {
    /// Its place among the items of the answer.
    place: usize,
    id: String,
    body: ItemBody,
}

#[derive(Debug)]
enum ItemBody {
    Reasoning { text: String },
    Message { text: String, logprobs: Vec<Value> },
    Call { number: usize, call_id: String, wire: Wire, arguments: String },
    Custom { number: usize, call_id: String, wire: Wire, input: Freeform },
}

impl OpenItem {
    /// Begins to reason.
    pub fn reasoning(place: usize, events: &Events, view: ItemView) -> (Self, Vec<Frame>) {
        let body = ItemBody::Reasoning { text: String::new() };
        let (opened, added) = Self::begin(place, "rs_", body, events, view);
        let part = if view.summaries {
            let part = json!({ "type": "summary_text", "text": "" });
            opened.event(events, "response.reasoning_summary_part.added", "part", part, SUMMARY)
        } else {
            let part = json!({ "type": "reasoning_text", "text": "" });
            opened.event(events, "response.content_part.added", "part", part, CONTENT)
        };
        (opened, vec![added, part])
    }

    /// Begins a message.
    pub fn message(place: usize, events: &Events, view: ItemView) -> (Self, Vec<Frame>) {
        let body = ItemBody::Message { text: String::new(), logprobs: Vec::new() };
        let (opened, added) = Self::begin(place, "msg_", body, events, view);
        let part = json!(MessagePart::text(String::new(), Vec::new()));
        let part = opened.event(events, "response.content_part.added", "part", part, CONTENT);
        (opened, vec![added, part])
    }

    /// Begins the call of this number.
    pub fn call(
        place: usize,
        events: &Events,
        number: usize,
        call_id: String,
        wire: Wire,
    ) -> (Self, Vec<Frame>) {
        let (prefix, body) = match wire.custom {
            true => {
                ("ctc_", ItemBody::Custom { number, call_id, wire, input: Freeform::default() })
            }
            false => ("fc_", ItemBody::Call { number, call_id, wire, arguments: String::new() }),
        };
        let (opened, added) = Self::begin(place, prefix, body, events, ItemView::default());
        (opened, vec![added])
    }

    fn begin(
        place: usize,
        prefix: &str,
        body: ItemBody,
        events: &Events,
        view: ItemView,
    ) -> (Self, Frame) {
        let opened = Self { place, id: random::id(prefix), body };
        let item = opened.item(ItemStatus::InProgress, view);
        let added = json!({ "output_index": place, "item": item });
        (opened, events.event("response.output_item.added", added))
    }

    /// Whether it is reasoning.
    pub fn is_reasoning(&self) -> bool {
        matches!(self.body, ItemBody::Reasoning { .. })
    }

    /// Whether it is a message.
    pub fn is_message(&self) -> bool {
        matches!(self.body, ItemBody::Message { .. })
    }

    /// Whether it is the call of this number.
    pub fn is_call(&self, wanted: usize) -> bool {
        let (ItemBody::Call { number, .. } | ItemBody::Custom { number, .. }) = &self.body else {
            return false;
        };
        *number == wanted
    }

    /// More text, of reasoning or of a message.
    pub fn text(&mut self, delta: Delta, events: &Events, view: ItemView) -> Option<Frame> {
        match &mut self.body {
            ItemBody::Reasoning { text } => {
                text.push_str(&delta.text);
                let (kind, index) = match view.summaries {
                    true => ("response.reasoning_summary_text.delta", SUMMARY),
                    false => ("response.reasoning_text.delta", CONTENT),
                };
                Some(self.event(events, kind, "delta", delta.text.into(), index))
            }
            ItemBody::Message { text, logprobs } => {
                text.push_str(&delta.text);
                let told = if view.logprobs { logprobs::chat(&delta.tokens) } else { Vec::new() };
                let tokens: Vec<Value> = told.iter().map(|token| json!(token)).collect();
                logprobs.extend_from_slice(&tokens);
                let members = json!({
                    "item_id": self.id, "output_index": self.place, "content_index": 0,
                    "delta": delta.text, "logprobs": tokens,
                });
                Some(events.event("response.output_text.delta", members))
            }
            ItemBody::Call { .. } | ItemBody::Custom { .. } => None,
        }
    }

    /// More of the arguments of a call.
    pub fn arguments(&mut self, delta: String, events: &Events) -> Option<Frame> {
        let (kind, delta) = match &mut self.body {
            ItemBody::Call { arguments, .. } => {
                arguments.push_str(&delta);
                ("response.function_call_arguments.delta", delta)
            }
            ItemBody::Custom { input, .. } => {
                ("response.custom_tool_call_input.delta", input.push(&delta))
            }
            ItemBody::Reasoning { .. } | ItemBody::Message { .. } => return None,
        };
        let said = !delta.is_empty();
        said.then(|| self.event(events, kind, "delta", delta.into(), NONE))
    }

    /// Ends it: the last events, and the item.
    pub fn end(
        mut self,
        status: ItemStatus,
        events: &Events,
        view: ItemView,
    ) -> (OutputItem, Vec<Frame>) {
        let mut frames = self.rest(events);
        let item = self.item(status, view);
        match &item {
            OutputItem::Reasoning(reasoning) => {
                frames.extend(self.end_reasoning(reasoning, events));
            }
            OutputItem::Message(message) => frames.extend(self.end_message(message, events)),
            OutputItem::FunctionCall(call) => {
                let kind = "response.function_call_arguments.done";
                let arguments = call.arguments.as_str().into();
                frames.push(self.event(events, kind, "arguments", arguments, NONE));
            }
            OutputItem::CustomToolCall(call) => {
                let kind = "response.custom_tool_call_input.done";
                frames.push(self.event(events, kind, "input", call.input.as_str().into(), NONE));
            }
        }
        let done = json!({ "output_index": self.place, "item": item });
        frames.push(events.event("response.output_item.done", done));
        (item, frames)
    }

    /// What a custom tool's text held back; from then on its arguments are its text.
    fn rest(&mut self, events: &Events) -> Vec<Frame> {
        let ItemBody::Custom { number, call_id, wire, input } = &mut self.body else {
            return Vec::new();
        };
        let (rest, arguments) = std::mem::take(input).finish();
        let (number, call_id, wire) = (*number, std::mem::take(call_id), wire.clone());
        self.body = ItemBody::Call { number, call_id, wire, arguments };
        if rest.is_empty() {
            return Vec::new();
        }
        let kind = "response.custom_tool_call_input.delta";
        vec![self.event(events, kind, "delta", rest.into(), NONE)]
    }

    fn end_reasoning(&self, reasoning: &Reasoning, events: &Events) -> Vec<Frame> {
        let passage = |passage: &Passage| {
            let (text, kinds, index) = match passage {
                Passage::SummaryText { text } => (text, SUMMARY_ENDS, SUMMARY),
                Passage::ReasoningText { text } => (text, CONTENT_ENDS, CONTENT),
            };
            let done = self.event(events, kinds[0], "text", text.as_str().into(), index);
            [done, self.event(events, kinds[1], "part", json!(passage), index)]
        };
        reasoning.summary.iter().chain(&reasoning.content).flat_map(passage).collect()
    }

    fn end_message(&self, message: &MessageItem, events: &Events) -> Vec<Frame> {
        let part = |part: &MessagePart| {
            let MessagePart::OutputText { text, logprobs, .. } = part;
            let members = json!({
                "item_id": self.id, "output_index": self.place, "content_index": 0,
                "text": text, "logprobs": logprobs,
            });
            let done = events.event("response.output_text.done", members);
            let kind = "response.content_part.done";
            [done, self.event(events, kind, "part", json!(part), CONTENT)]
        };
        message.content.iter().flat_map(part).collect()
    }

    /// An event about this item with one member of its own, and the index of a part.
    fn event(
        &self,
        events: &Events,
        kind: &'static str,
        name: &str,
        value: Value,
        index: Index,
    ) -> Frame {
        let mut members = json!({ "item_id": self.id, "output_index": self.place });
        if let Some(index) = index {
            members[index] = 0.into();
        }
        members[name] = value;
        events.event(kind, members)
    }

    /// The item as it is now. A message has no part before its first one is announced.
    fn item(&self, status: ItemStatus, view: ItemView) -> OutputItem {
        let id = self.id.clone();
        let begun = status != ItemStatus::InProgress;
        match &self.body {
            ItemBody::Reasoning { text } => {
                OutputItem::Reasoning(reasoning(id, text, status, view))
            }
            ItemBody::Message { text, logprobs } => {
                let part = || MessagePart::text(text.clone(), logprobs.clone());
                let content = begun.then(part).into_iter().collect();
                let role = Assistant::Assistant;
                OutputItem::Message(MessageItem { id, status, role, content })
            }
            ItemBody::Call { call_id, wire, arguments, .. } => {
                called(id, call_id, wire, arguments.clone(), status)
            }
            ItemBody::Custom { call_id, wire, .. } => {
                called(id, call_id, wire, String::new(), status)
            }
        }
    }
}

type Index = Option<&'static str>;
const SUMMARY: Index = Some("summary_index");
const CONTENT: Index = Some("content_index");
const NONE: Index = None;

const SUMMARY_ENDS: [&str; 2] =
    ["response.reasoning_summary_text.done", "response.reasoning_summary_part.done"];
const CONTENT_ENDS: [&str; 2] = ["response.reasoning_text.done", "response.content_part.done"];

fn reasoning(id: String, text: &str, status: ItemStatus, view: ItemView) -> Reasoning {
    let text = || text.to_owned();
    let begun = status != ItemStatus::InProgress;
    let summary = begun && view.summaries;
    let content = begun && !view.summaries;
    Reasoning {
        id,
        summary: summary.then(|| Passage::SummaryText { text: text() }).into_iter().collect(),
        content: content.then(|| Passage::ReasoningText { text: text() }).into_iter().collect(),
        encrypted_content: (begun && view.sealed).then(|| sealed(&text())),
        status,
    }
}

fn called(id: String, call_id: &str, wire: &Wire, input: String, status: ItemStatus) -> OutputItem {
    let Wire { name, namespace, custom } = wire.clone();
    let call_id = call_id.to_owned();
    if custom {
        return OutputItem::CustomToolCall(CustomCall {
            id,
            call_id,
            name,
            namespace,
            input,
            status,
        });
    }
    OutputItem::FunctionCall(FunctionCall {
        id,
        call_id,
        name,
        namespace,
        arguments: input,
        status,
    })
}
