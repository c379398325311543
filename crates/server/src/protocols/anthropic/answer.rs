//! The answer of `POST /v1/messages`, whole and as events.

use crate::generate::answer::{Answer, AnswerBlock, AnswerCall, Collected};
use crate::http::error::HttpError;
use crate::http::protocol::Protocol;
use crate::http::random;
use crate::http::sse::Frame;
use crate::protocols::anthropic::Anthropic;
use crate::protocols::anthropic::response::{
    BlockDelta, ContentBlock, Ending, MessageResponse, MessageUsage, OutputTokensDetails,
    StopReason, StreamEvent,
};
use api::{CallEvent, Finish, TextEvent};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::time::Duration;

const TIER: &str = "standard";

/// Writes messages.
#[derive(Debug)]
pub(crate) struct MessageAnswer {
    id: String,
    model: String,
    prompt_tokens: usize,
    /// Tokens that had to be computed count as written to the cache.
    caches: bool,
    /// Blocks that were begun.
    blocks: usize,
    open: Option<Open>,
    /// A block of text or of a call was begun.
    spoken: bool,
    ending: Ending,
}

/// The block that is being sent.
#[derive(Debug)]
enum Open {
    /// With the digest of its text so far.
    Thinking(Sha256),
    Text,
    Call(usize),
}

impl MessageAnswer {
    /// For the answer of `model` to a prompt of so many tokens.
    pub fn new(model: &str, prompt_tokens: usize, caches: bool) -> Self {
        Self {
            id: random::id("msg_"),
            model: model.to_owned(),
            prompt_tokens,
            caches,
            blocks: 0,
            open: None,
            spoken: false,
            ending: Ending { stop_reason: None, stop_sequence: None },
        }
    }

    /// The message's name.
    pub fn id(&self) -> &str {
        &self.id
    }

    fn message(
        &self,
        content: Vec<ContentBlock>,
        ending: Ending,
        usage: MessageUsage,
    ) -> MessageResponse {
        MessageResponse {
            id: self.id.clone(),
            kind: "message",
            role: "assistant",
            model: self.model.clone(),
            content,
            stop_reason: ending.stop_reason,
            stop_sequence: ending.stop_sequence,
            usage: MessageUsage { service_tier: Some(TIER), ..usage },
        }
    }

    fn usage(&self, usage: &api::Usage) -> MessageUsage {
        let cached = usage.cached_tokens.min(usage.prompt_tokens);
        let computed = usage.prompt_tokens - cached;
        let (written, input) = if self.caches { (computed, 0) } else { (0, computed) };
        MessageUsage {
            input_tokens: input,
            cache_creation_input_tokens: written,
            cache_read_input_tokens: cached,
            output_tokens: usage.completion_tokens,
            output_tokens_details: Some(OutputTokensDetails {
                thinking_tokens: usage.reasoning_tokens,
            }),
            service_tier: None,
        }
    }

    fn begin(&mut self, open: Open, content_block: ContentBlock) -> Vec<StreamEvent> {
        let mut events = self.end();
        let index = self.blocks;
        self.blocks += 1;
        self.spoken |= !matches!(open, Open::Thinking(_));
        self.open = Some(open);
        events.push(StreamEvent::ContentBlockStart { index, content_block });
        events
    }

    /// Ends the block that is being sent, if one is.
    fn end(&mut self) -> Vec<StreamEvent> {
        let Some(open) = self.open.take() else { return Vec::new() };
        let index = self.blocks - 1;
        let mut events = Vec::new();
        if let Open::Thinking(digest) = open {
            let delta = BlockDelta::Signature { signature: hex(digest) };
            events.push(StreamEvent::ContentBlockDelta { index, delta });
        }
        events.push(StreamEvent::ContentBlockStop { index });
        events
    }

    fn delta(&self, delta: BlockDelta) -> StreamEvent {
        StreamEvent::ContentBlockDelta { index: self.blocks.saturating_sub(1), delta }
    }

    fn thinking(&mut self, text: String) -> Vec<StreamEvent> {
        if text.is_empty() {
            return Vec::new();
        }
        let mut events = match self.open {
            Some(Open::Thinking(_)) => Vec::new(),
            _ => self
                .begin(Open::Thinking(Sha256::new()), thinking_block(String::new(), String::new())),
        };
        if let Some(Open::Thinking(digest)) = &mut self.open {
            digest.update(text.as_bytes());
        }
        events.push(self.delta(BlockDelta::Thinking { thinking: text }));
        events
    }

    fn text(&mut self, text: String) -> Vec<StreamEvent> {
        if text.is_empty() {
            return Vec::new();
        }
        let mut events = match self.open {
            Some(Open::Text) => Vec::new(),
            _ => self.begin(Open::Text, ContentBlock::Text { text: String::new() }),
        };
        events.push(self.delta(BlockDelta::Text { text }));
        events
    }

    fn call(&mut self, event: CallEvent) -> Vec<StreamEvent> {
        match event {
            CallEvent::Start { index, id, name } => {
                self.begin(Open::Call(index), ContentBlock::ToolUse { id, name, input: Map::new() })
            }
            CallEvent::Arguments { index, delta } if self.calls(index) => {
                vec![self.delta(BlockDelta::InputJson { partial_json: delta })]
            }
            CallEvent::End { index } | CallEvent::Broken { index } if self.calls(index) => {
                self.end()
            }
            _ => Vec::new(),
        }
    }

    fn calls(&self, index: usize) -> bool {
        matches!(self.open, Some(Open::Call(open)) if open == index)
    }

    fn done(&mut self, finish: Finish) -> Vec<StreamEvent> {
        self.ending = ending(finish);
        let mut events = self.end();
        // Clients expect something besides thoughts.
        if !self.spoken {
            events.extend(self.begin(Open::Text, ContentBlock::Text { text: String::new() }));
            events.extend(self.end());
        }
        events
    }
}

impl Answer for MessageAnswer {
    /// Clients give a stream up that says nothing for 15 s.
    const MAX_SILENCE: Duration = Duration::from_secs(10);

    /// The ping tells the client to be patient: the prompt is yet to be computed.
    fn open(&mut self) -> Vec<Frame> {
        let usage = MessageUsage { input_tokens: self.prompt_tokens, ..MessageUsage::default() };
        let message = self.message(Vec::new(), self.ending.clone(), usage);
        frames(vec![StreamEvent::MessageStart { message }, StreamEvent::Ping])
    }

    fn frames(&mut self, _: usize, event: TextEvent) -> Vec<Frame> {
        frames(match event {
            TextEvent::Reasoning(delta) => self.thinking(delta.text),
            TextEvent::Content(delta) => self.text(delta.text),
            TextEvent::Call(event) => self.call(event),
            TextEvent::Done(done) => self.done(done.finish),
            TextEvent::Prefill { .. } | TextEvent::Prompt { .. } | TextEvent::Failed(_) => {
                Vec::new()
            }
        })
    }

    fn close(&mut self, usage: &api::Usage) -> Vec<Frame> {
        let (delta, usage) = (self.ending.clone(), self.usage(usage));
        frames(vec![StreamEvent::MessageDelta { delta, usage }, StreamEvent::MessageStop])
    }

    fn broken(&mut self, error: &HttpError) -> Vec<Frame> {
        vec![Frame::Named("error", Anthropic::json(error))]
    }

    fn ping(&self) -> Option<Frame> {
        Some(frame(&StreamEvent::Ping))
    }

    fn whole(&mut self, choices: Vec<Collected>, usage: &api::Usage) -> Value {
        let Collected { blocks, done, .. } = choices.into_iter().next().unwrap_or_default();
        let mut content: Vec<ContentBlock> = blocks.into_iter().filter_map(block).collect();
        if content.iter().all(|block| matches!(block, ContentBlock::Thinking { .. })) {
            content.push(ContentBlock::Text { text: String::new() });
        }
        let ending = done.map_or_else(|| self.ending.clone(), |done| ending(done.finish));
        json!(self.message(content, ending, self.usage(usage)))
    }
}

fn frames(events: Vec<StreamEvent>) -> Vec<Frame> {
    events.iter().map(frame).collect()
}

fn frame(event: &StreamEvent) -> Frame {
    Frame::Named(event.name(), json!(event))
}

fn ending(finish: Finish) -> Ending {
    let (stop_reason, stop_sequence) = match finish {
        Finish::StopId(_) | Finish::Complete => (StopReason::EndTurn, None),
        Finish::StopString(text) => (StopReason::StopSequence, Some(text)),
        Finish::ToolCalls => (StopReason::ToolUse, None),
        Finish::Length => (StopReason::MaxTokens, None),
    };
    Ending { stop_reason: Some(stop_reason), stop_sequence }
}

/// `None` for a block without text.
fn block(block: AnswerBlock) -> Option<ContentBlock> {
    match block {
        AnswerBlock::Reasoning(text) | AnswerBlock::Content(text) if text.is_empty() => None,
        AnswerBlock::Reasoning(text) => {
            let signature = hex(Sha256::new_with_prefix(&text));
            Some(thinking_block(text, signature))
        }
        AnswerBlock::Content(text) => Some(ContentBlock::Text { text }),
        AnswerBlock::Call(AnswerCall { id, name, arguments, .. }) => {
            // A call's arguments are an object; those of one that got none are empty.
            let input = serde_json::from_str(&arguments).unwrap_or_default();
            Some(ContentBlock::ToolUse { id, name, input })
        }
    }
}

fn thinking_block(thinking: String, signature: String) -> ContentBlock {
    ContentBlock::Thinking { thinking, signature }
}

fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
