//! What a stream records of an answer that becomes a turn of a transcript.

use crate::event::{CallEvent, TextEvent};
use crate::message::{Message, ToolCall};
use crate::replay::arguments;
use crate::request::Origin;

/// An answer of a transcript, as far as it came.
#[derive(Debug)]
pub(crate) struct AnswerRecord {
    pub origin: Origin,
    /// The prompt after the tokens of the turn before.
    pub prompt: Vec<u32>,
    /// The sampled tokens, without a stop id.
    pub sampled: Vec<u32>,
    /// Of these, the tokens before an unfinished call and text that is not decided yet.
    pub settled: usize,
    /// Text that is no part of the answer completed it, so that the tokens are not only its own.
    pub is_foreign: bool,
    /// The answer, with its complete calls.
    pub message: Message,
    /// The arguments of the call that is not complete.
    open: Option<(ToolCall, String)>,
}

impl AnswerRecord {
    /// A record of an answer to a prompt that ends in these tokens.
    pub fn new(origin: Origin, prompt: Vec<u32>) -> Self {
        Self {
            origin,
            prompt,
            sampled: Vec::new(),
            settled: 0,
            is_foreign: false,
            message: Message { role: "assistant".into(), ..Message::default() },
            open: None,
        }
    }

    /// Takes the events of a token.
    pub fn take<'a>(&mut self, events: impl IntoIterator<Item = &'a TextEvent>) {
        for event in events {
            match event {
                TextEvent::Reasoning(delta) => {
                    self.message.reasoning.get_or_insert_default().push_str(&delta.text);
                }
                TextEvent::Content(delta) => self.message.push_text(&delta.text),
                TextEvent::Call(call) => self.take_call(call),
                _ => {}
            }
        }
    }

    fn take_call(&mut self, event: &CallEvent) {
        match event {
            CallEvent::Start { id, name, .. } => {
                let (id, name) = (Some(id.clone()), name.clone());
                self.open = Some((ToolCall { id, name, ..ToolCall::default() }, String::new()));
            }
            CallEvent::Arguments { delta, .. } => {
                if let Some((_, text)) = &mut self.open {
                    text.push_str(delta);
                }
            }
            CallEvent::End { .. } => {
                if let Some((mut call, text)) = self.open.take() {
                    call.arguments = arguments(&text);
                    self.message.calls.push(call);
                }
            }
            CallEvent::Broken { .. } => self.open = None,
        }
    }
}
