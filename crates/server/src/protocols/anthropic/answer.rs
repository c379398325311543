//! The answer of `POST /v1/messages`, whole and as events.

use crate::generate::answer::{Answer, Collected, members};
use crate::http::error::HttpError;
use crate::http::keys::Digest;
use crate::http::protocol::Protocol;
use crate::http::random;
use crate::http::sse::Frame;
use crate::protocols::anthropic::protocol::Anthropic;
use crate::protocols::anthropic::response::{
    BlockDelta, ContentBlock, Ending, MessageResponse, MessageUsage, OutputTokensDetails,
    StopReason, StreamEvent,
};
use crate::protocols::sealed::sealed;
use crate::protocols::warnings::Warnings;
use api::{CallEvent, Finish, TextEvent};
use serde_json::{Map, Value, json};
use std::time::Duration;

const TIER: Option<&str> = Some("standard");

/// The answer of a request for a message.
#[derive(Debug)]
pub(crate) struct MessageAnswer {
    /// The message, with the blocks that have ended.
    pub message: MessageResponse,
    /// Tokens that had to be computed count as written to the cache.
    caches: bool,
    /// Thinking blocks have no text; their signatures hold it.
    pub omits_thinking: bool,
    /// Blocks that were begun.
    blocks: usize,
    open: Option<OpenBlock>,
    /// Events that are yet to be sent.
    events: Vec<StreamEvent>,
}

/// The block that is being sent.
#[derive(Debug)]
struct OpenBlock {
    /// The block without its text.
    block: ContentBlock,
    /// Its text up to now, or the arguments of the call.
    text: String,
    /// The number of the call that it is.
    call: Option<usize>,
}

impl MessageAnswer {
    /// An answer of `model` to a prompt of so many tokens.
    pub fn new(model: &str, prompt_tokens: usize, caches: bool) -> Self {
        let usage = MessageUsage { input_tokens: prompt_tokens, ..MessageUsage::default() };
        let message = MessageResponse {
            id: random::id("msg_"),
            kind: "message",
            role: "assistant",
            model: model.to_owned(),
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            usage: MessageUsage { service_tier: TIER, ..usage },
            context_management: None,
            warnings: Warnings::default(),
        };
        let (open, events) = (None, Vec::new());
        Self { message, caches, omits_thinking: false, blocks: 0, open, events }
    }

    /// Begins the message: how many tokens of the prompt are cached is known now, and final. The
    /// ping tells the client to be patient: the rest of the prompt is yet to be computed.
    fn admitted(&mut self, cached_tokens: usize) {
        let usage = &mut self.message.usage;
        let cached = cached_tokens.min(usage.input_tokens);
        let computed = usage.input_tokens - cached;
        usage.cache_read_input_tokens = cached;
        (usage.cache_creation_input_tokens, usage.input_tokens) =
            if self.caches { (computed, 0) } else { (0, computed) };
        let message = self.message.clone();
        self.events.extend([StreamEvent::MessageStart { message }, StreamEvent::Ping]);
    }

    /// The counts of the whole answer; those of the prompt are as when the message began.
    fn usage(&self, usage: &api::Usage) -> MessageUsage {
        MessageUsage {
            output_tokens: usage.completion_tokens,
            output_tokens_details: Some(OutputTokensDetails {
                thinking_tokens: usage.reasoning_tokens,
            }),
            ..self.message.usage.clone()
        }
    }

    fn tell(&mut self, event: TextEvent) {
        match event {
            TextEvent::Reasoning(delta) => self.say(delta.text, true),
            TextEvent::Content(delta) => self.say(delta.text, false),
            TextEvent::Call(event) => self.call(event),
            TextEvent::Done(done) => self.done(done.finish),
            TextEvent::Admitted(found) => self.admitted(found.found),
            TextEvent::Prefill { .. } | TextEvent::Prompt { .. } | TextEvent::Failed(_) => {}
        }
    }

    fn begin(&mut self, block: ContentBlock, call: Option<usize>) {
        self.end();
        let (index, content_block) = (self.blocks, block.clone());
        self.events.push(StreamEvent::ContentBlockStart { index, content_block });
        self.blocks += 1;
        self.open = Some(OpenBlock { block, text: String::new(), call });
    }

    /// Ends the block that is being sent, if one is.
    fn end(&mut self) {
        let Some(OpenBlock { mut block, text, .. }) = self.open.take() else { return };
        match &mut block {
            ContentBlock::Thinking { thinking, signature } => {
                (*signature, *thinking) = match self.omits_thinking {
                    true => (sealed(&text), String::new()),
                    false => (Digest::of(text.as_bytes()).hex(), text),
                };
                self.delta(BlockDelta::Signature { signature: signature.clone() });
            }
            ContentBlock::Text { text: whole } => *whole = text,
            ContentBlock::ToolUse { input, .. } => {
                *input = members(&text);
            }
        }
        self.events.push(StreamEvent::ContentBlockStop { index: self.blocks - 1 });
        match (self.message.content.last_mut(), block) {
            // Between them was a call that broke.
            (Some(ContentBlock::Text { text: last }), ContentBlock::Text { text }) => {
                last.push_str(&text);
            }
            (_, block) => self.message.content.push(block),
        }
    }

    fn delta(&mut self, delta: BlockDelta) {
        let index = self.blocks.saturating_sub(1);
        self.events.push(StreamEvent::ContentBlockDelta { index, delta });
    }

    /// More of a thought or of a text.
    fn say(&mut self, text: String, thinks: bool) {
        if text.is_empty() {
            return;
        }
        let is_thought = |open: &OpenBlock| matches!(open.block, ContentBlock::Thinking { .. });
        let same = |open: &OpenBlock| open.call.is_none() && is_thought(open) == thinks;
        if !self.open.as_ref().is_some_and(same) {
            let empty = String::new;
            let block = match thinks {
                true => ContentBlock::Thinking { thinking: empty(), signature: empty() },
                false => ContentBlock::Text { text: empty() },
            };
            self.begin(block, None);
        }
        self.more(text);
    }

    /// More of the block that is being sent.
    fn more(&mut self, text: String) {
        let Some(open) = &mut self.open else { return };
        open.text.push_str(&text);
        if self.omits_thinking && matches!(open.block, ContentBlock::Thinking { .. }) {
            return;
        }
        let delta = match open.block {
            ContentBlock::Thinking { .. } => BlockDelta::Thinking { thinking: text },
            ContentBlock::Text { .. } => BlockDelta::Text { text },
            ContentBlock::ToolUse { .. } => BlockDelta::InputJson { partial_json: text },
        };
        self.delta(delta);
    }

    fn call(&mut self, event: CallEvent) {
        let is_open = |call| self.open.as_ref().is_some_and(|open| open.call == Some(call));
        match event {
            CallEvent::Start { index, id, name } => {
                self.begin(ContentBlock::ToolUse { id, name, input: Map::new() }, Some(index));
            }
            CallEvent::Arguments { index, delta } if is_open(index) => self.more(delta),
            CallEvent::End { index } if is_open(index) => self.end(),
            CallEvent::Broken { index } if is_open(index) => {
                self.end();
                self.message.content.pop();
            }
            _ => {}
        }
    }

    fn done(&mut self, finish: Finish) {
        let (reason, sequence) = match finish {
            Finish::StopId(_) | Finish::Complete => (StopReason::EndTurn, None),
            Finish::StopString(text) => (StopReason::StopSequence, Some(text)),
            Finish::ToolCalls => (StopReason::ToolUse, None),
            Finish::Length => (StopReason::MaxTokens, None),
        };
        (self.message.stop_reason, self.message.stop_sequence) = (Some(reason), sequence);
        self.end();
        // Clients expect something besides thoughts.
        let is_thought = |block: &ContentBlock| matches!(block, ContentBlock::Thinking { .. });
        if self.message.content.iter().all(is_thought) {
            self.begin(ContentBlock::Text { text: String::new() }, None);
            self.end();
        }
    }

    fn take(&mut self) -> Vec<Frame> {
        self.events.drain(..).map(|event| Frame::typed(json!(event))).collect()
    }
}

impl Answer for MessageAnswer {
    /// Clients close a stream after 15 s of silence.
    const MAX_SILENCE: Duration = Duration::from_secs(10);

    fn note(&mut self, _: usize, event: &TextEvent) {
        self.tell(event.clone());
        self.events.clear();
    }

    fn frames(&mut self, _: usize, event: TextEvent) -> Vec<Frame> {
        self.tell(event);
        self.take()
    }

    fn close(&mut self, usage: &api::Usage) -> Vec<Frame> {
        let MessageResponse { stop_reason, stop_sequence, context_management, .. } =
            self.message.clone();
        let delta = Ending { stop_reason, stop_sequence };
        let usage = MessageUsage { service_tier: None, ..self.usage(usage) };
        let delta = StreamEvent::MessageDelta { delta, usage, context_management };
        self.events.extend([delta, StreamEvent::MessageStop]);
        self.take()
    }

    fn refused(error: &HttpError) -> Vec<Frame> {
        vec![Frame::typed(Anthropic::json(error))]
    }

    fn waiting() -> Option<Frame> {
        Some(Frame::typed(json!(StreamEvent::Ping)))
    }

    fn whole(&mut self, _: Vec<Collected>, usage: &api::Usage) -> Value {
        self.message.usage = self.usage(usage);
        json!(self.message)
    }
}

#[cfg(test)]
mod tests;
