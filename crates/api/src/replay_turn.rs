//! A turn that called tools, with its tokens.

use crate::message::{Message, ToolCall};
use crate::turn_records::KeptRecord;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes counted for each turn in addition to its tokens and texts.
const OVERHEAD: usize = 256;

/// Digest of everything before a message.
pub(crate) type Digested = [u8; 32];

/// An answer that called tools.
#[derive(Debug)]
pub(crate) struct ReplayTurn {
    /// The calls, in order.
    pub calls: Vec<ToolCall>,
    /// The visible text.
    pub content: String,
    /// Digest of the conversation before the turn.
    pub before: Digested,
    /// The turn with whose tokens the prompt begins.
    pub parent: Option<Arc<ReplayTurn>>,
    /// The rest of the prompt.
    pub prompt: Vec<u32>,
    /// The sampled tokens, without the stop id.
    pub sampled: Vec<u32>,
    /// The bytes of the turn, counted while it lives.
    pub weight: Weight,
    /// The turn where it outlives the process.
    pub record: Option<KeptRecord>,
}

/// Bytes that are counted until the value is dropped.
#[derive(Debug, Default)]
pub(crate) struct Weight {
    bytes: usize,
    held: Arc<AtomicUsize>,
}

impl Weight {
    /// Counts `bytes` in `held`.
    pub fn new(bytes: usize, held: &Arc<AtomicUsize>) -> Self {
        held.fetch_add(bytes, Ordering::Relaxed);
        Self { bytes, held: Arc::clone(held) }
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl ReplayTurn {
    /// A turn that is known by its tokens alone.
    pub fn of_tokens(parent: Option<Arc<Self>>, prompt: Vec<u32>, sampled: Vec<u32>) -> Self {
        Self {
            calls: Vec::new(),
            content: String::new(),
            before: Digested::default(),
            parent,
            prompt,
            sampled,
            weight: Weight::default(),
            record: None,
        }
    }

    /// All tokens of the conversation up to the end of the turn.
    pub fn tokens(&self) -> Vec<u32> {
        let chain: Vec<&ReplayTurn> =
            std::iter::successors(Some(self), |turn| turn.parent.as_deref()).collect();
        let parts = chain.iter().rev().flat_map(|turn| [&turn.prompt[..], &turn.sampled]);
        parts.flatten().copied().collect()
    }

    /// Bytes of the turn without those before it.
    pub fn bytes(&self) -> usize {
        let argument = |call: &ToolCall| {
            let (id, name, arguments) = call.key();
            id.len() + name.len() + size(arguments)
        };
        let tokens = (self.prompt.len() + self.sampled.len()) * size_of::<u32>();
        let calls: usize = self.calls.iter().map(argument).sum();
        tokens + calls + self.content.len() + OVERHEAD
    }

    /// Whether `message` is this turn as a client returns it, with or without its text.
    pub fn is(&self, message: &Message) -> bool {
        let content = message.text().unwrap_or_default();
        let content = content.trim();
        message.calls.iter().map(ToolCall::key).eq(self.calls.iter().map(ToolCall::key))
            && (content.is_empty() || content == self.content.trim())
    }
}

/// A long conversation is a long chain, which must not be dropped recursively.
impl Drop for ReplayTurn {
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(mut turn) = parent.and_then(Arc::into_inner) {
            parent = turn.parent.take();
        }
    }
}

/// Bytes of the texts in `value`.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(members) => members.iter().map(|(name, v)| name.len() + size(v) + 32).sum(),
        _ => 8,
    }
}
