//! Remembers the sampled tokens of turns that called tools, so that a conversation that a client
//! returns as JSON continues from the tokens in the cache.
//!
//! A client returns a call as parsed JSON and may omit the reasoning before it; a template renders
//! the call differently from the sampled tokens, and the cached prefix would be lost at every turn.
//! Each turn that ended in calls is therefore stored under the ids of its calls: the tokens of its
//! prompt and the sampled ones. The turn is reused if the client sends all of its calls unchanged
//! after the same conversation; otherwise the rendered text is used. The prompt of a turn mostly
//! begins with the tokens of an earlier turn, to which the turn then refers.
//!
//! Invariant: at most [`MAX_IDS`] ids and [`MAX_BYTES`] bytes, including evicted turns that others
//! refer to. The least recently used turns are evicted first.

use crate::message::{Message, ToolCall};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Most ids of calls.
const MAX_IDS: usize = 100_000;
/// Most bytes of tokens and texts.
const MAX_BYTES: usize = 256 << 20;
/// Bytes counted for each turn in addition to its tokens and texts.
const OVERHEAD: usize = 256;

/// Members that some clients omit when they return a message.
const HIDDEN: [&str; 4] = ["reasoning", "refusal", "audio", "annotations"];

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
}

/// Bytes that are counted until the value is dropped.
#[derive(Debug, Default)]
pub(crate) struct Weight {
    bytes: usize,
    held: Arc<AtomicUsize>,
}

impl Weight {
    fn new(bytes: usize, held: &Arc<AtomicUsize>) -> Self {
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
    /// All tokens of the conversation up to the end of the turn.
    pub fn tokens(&self) -> Vec<u32> {
        let chain: Vec<&ReplayTurn> =
            std::iter::successors(Some(self), |turn| turn.parent.as_deref()).collect();
        let parts = chain.iter().rev().flat_map(|turn| [&turn.prompt[..], &turn.sampled]);
        parts.flatten().copied().collect()
    }

    fn bytes(&self) -> usize {
        let argument = |call: &ToolCall| {
            let (id, name, arguments) = call.key();
            id.len() + name.len() + size(arguments)
        };
        let tokens = (self.prompt.len() + self.sampled.len()) * size_of::<u32>();
        let calls: usize = self.calls.iter().map(argument).sum();
        tokens + calls + self.content.len() + OVERHEAD
    }

    /// Whether `message` is this turn as a client returns it, with or without its text.
    fn is(&self, message: &Message) -> bool {
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

/// The turns of all conversations.
#[derive(Debug, Default)]
pub(crate) struct ReplayMemory(Mutex<ReplayState>);

#[derive(Debug, Default)]
struct ReplayState {
    /// For each call id, the number of the last use of its turn.
    ids: HashMap<String, u64>,
    turns: BTreeMap<u64, Arc<ReplayTurn>>,
    /// Bytes of all turns that are alive.
    bytes: Arc<AtomicUsize>,
    uses: u64,
}

impl ReplayMemory {
    /// Adds a turn.
    pub fn remember(&self, turn: ReplayTurn) {
        self.lock().insert(turn);
    }

    /// The last of `messages` that is a remembered turn, and the turn. `before(at)` is the digest
    /// of the conversation before message `at`.
    pub fn find(
        &self,
        messages: &[Message],
        before: impl Fn(usize) -> Digested,
    ) -> Option<(usize, Arc<ReplayTurn>)> {
        let mut memory = self.lock();
        messages.iter().enumerate().rev().find_map(|(at, message)| {
            let turn = memory.turn(message)?;
            (turn.before == before(at)).then_some((at, turn))
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ReplayState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplayState {
    /// The turn that `message` is; counts as a use.
    fn turn(&mut self, message: &Message) -> Option<Arc<ReplayTurn>> {
        let id = message.calls.first()?.id.as_ref()?;
        let used = *self.ids.get(id)?;
        if !self.turns.get(&used)?.is(message) {
            return None;
        }
        let turn = self.turns.remove(&used)?;
        self.place(Arc::clone(&turn));
        Some(turn)
    }

    fn place(&mut self, turn: Arc<ReplayTurn>) {
        self.uses += 1;
        for id in turn.calls.iter().filter_map(|call| call.id.clone()) {
            self.ids.insert(id, self.uses);
        }
        self.turns.insert(self.uses, turn);
    }

    fn insert(&mut self, mut turn: ReplayTurn) {
        turn.weight = Weight::new(turn.bytes(), &self.bytes);
        self.place(Arc::new(turn));
        // A turn that others refer to is freed with the last of them.
        while self.ids.len() > MAX_IDS || self.bytes.load(Ordering::Relaxed) > MAX_BYTES {
            let Some((_, oldest)) = self.turns.pop_first() else { return };
            for id in oldest.calls.iter().filter_map(|call| call.id.as_ref()) {
                self.ids.remove(id);
            }
        }
    }
}

/// Digests of the conversation before each message and before the answer, over `space`, the part
/// of the caches, `setting`, the template's other variables, and the parts of messages that decide
/// the rendered tokens.
pub(crate) fn digests(space: [u8; 16], setting: &Value, messages: &[Message]) -> Vec<Digested> {
    let mut hash = Sha256::new_with_prefix(space);
    write(setting, &mut hash);
    let mut digests = vec![hash.finalize().into()];
    for message in messages {
        let mut hash = Sha256::new_with_prefix(digests[digests.len() - 1]);
        write(&visible(message), &mut hash);
        digests.push(hash.finalize().into());
    }
    digests
}

/// The parts of a message that all clients return; some omit reasoning, or the text of a message
/// with calls.
fn visible(message: &Message) -> Value {
    if !message.calls.is_empty() {
        return message.calls.iter().map(|call| json!(call.key())).collect();
    }
    let mut visible = message.extra.clone();
    visible.retain(|name, it| !HIDDEN.contains(&&**name) && !it.is_null());
    let Message { role, call_id, name, .. } = message;
    json!([role.name(), message.text(), call_id, name, visible])
}

/// Parses the arguments of a call for templates and comparisons: an object, or the text if it is
/// not a valid object.
pub fn arguments(text: &str) -> Value {
    if text.trim().is_empty() {
        return serde_json::Map::new().into();
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => object.into(),
        _ => text.into(),
    }
}

/// Feeds `value` to `hash`: members sorted by name, each value with its kind and length, so that
/// different values have different encodings.
fn write(value: &Value, hash: &mut Sha256) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| *name);
            hash.update(format!("o{}:", sorted.len()));
            for (name, value) in sorted {
                hash.update(format!("{}:{name}", name.len()));
                write(value, hash);
            }
        }
        Value::Array(items) => {
            hash.update(format!("a{}:", items.len()));
            items.iter().for_each(|item| write(item, hash));
        }
        Value::String(text) => {
            hash.update(format!("s{}:", text.len()));
            hash.update(text);
        }
        other => hash.update(format!("v{other};")),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, arguments: Value) -> Message {
        let call = json!({"id": id, "function": {"name": "f", "arguments": arguments}});
        Message { calls: vec![call.into()], ..Message::assistant("so") }
    }

    fn turn(id: &str, parent: Option<Arc<ReplayTurn>>) -> ReplayTurn {
        let calls = message(id, json!({"a": 1, "b": 2})).calls;
        let (prompt, sampled) = (vec![1, 2], vec![3]);
        let weight = Weight::default();
        ReplayTurn { calls, content: "so".into(), before: [7; 32], parent, prompt, sampled, weight }
    }

    fn check(sent: Message, before: Digested, found: bool) {
        let memory = ReplayMemory::default();
        memory.remember(turn("x", None));
        let messages = [Message::user("q"), sent];
        assert_eq!(memory.find(&messages, |_| before).is_some(), found, "{messages:?}");
    }

    #[test]
    fn only_the_same_calls_behind_the_same_conversation_are_found() {
        check(message("x", json!({"b": 2, "a": 1})), [7; 32], true);
        check(message("x", json!({"a": 1, "b": 2})), [8; 32], false);
        check(message("x", json!({"a": 1, "b": 3})), [7; 32], false);
        check(message("y", json!({"a": 1, "b": 2})), [7; 32], false);
        let mut silent = message("x", json!({"a": 1, "b": 2}));
        silent.content.clear();
        check(silent.clone(), [7; 32], true);
        silent.content = Message::user("other").content;
        check(silent, [7; 32], false);
    }

    #[test]
    fn tokens_are_those_of_the_whole_chain() {
        let first = Arc::new(turn("x", None));
        assert_eq!(turn("y", Some(first)).tokens(), [1, 2, 3, 1, 2, 3]);
    }

    #[test]
    fn long_chains_end_without_recursion() {
        let grow = |parent, at: usize| Some(Arc::new(turn(&at.to_string(), parent)));
        drop((0..200_000).fold(None, grow));
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let memory = ReplayMemory::default();
        let large = |id: &str| {
            let mut turn = turn(id, None);
            turn.sampled = vec![0; MAX_BYTES / 4 / 5 * 2];
            turn
        };
        memory.remember(large("a"));
        memory.remember(large("b"));
        let found =
            |id: &str| memory.find(&[message(id, json!({"a": 1, "b": 2}))], |_| [7; 32]).is_some();
        assert!(found("a"));
        memory.remember(large("c"));
        assert_eq!([found("a"), found("b"), found("c")], [true, false, true]);
    }

    #[test]
    fn what_others_go_on_from_counts_until_it_is_let_go() {
        let memory = ReplayMemory::default();
        let find = |id: &str| {
            let found = memory.find(&[message(id, json!({"a": 1, "b": 2}))], |_| [7; 32]);
            found.map(|(_, turn)| turn)
        };
        let mut large = Vec::new();
        for at in 0..8 {
            let mut first = turn(&format!("first-{at}"), None);
            first.sampled = vec![0; MAX_BYTES / 4 / 3];
            memory.remember(first);
            let first = find(&format!("first-{at}")).unwrap();
            large.push(Arc::downgrade(&first));
            memory.remember(turn(&format!("last-{at}"), Some(first)));
            (0..=at).for_each(|earlier| drop(find(&format!("last-{earlier}"))));
        }
        let alive = large.iter().filter(|turn| turn.strong_count() > 0).count();
        assert!((1..=3).contains(&alive), "{alive} thirds are held");
        assert!(find("last-7").is_some());
    }

    #[test]
    fn digests_see_what_counts_and_nothing_else() {
        let of = |message: Value| digests([0; 16], &json!(null), &[message.into()])[1];
        let plain = json!({"role": "user", "content": "a"});
        assert_eq!(of(plain.clone()), of(json!({"content": "a", "role": "user", "name": null})));
        assert_ne!(of(plain.clone()), of(json!({"role": "user", "content": "b"})));
        assert_ne!(digests([0; 16], &json!(1), &[]), digests([0; 16], &json!(2), &[]));
        assert_ne!(digests([0; 16], &json!(1), &[]), digests([1; 16], &json!(1), &[]));
        let thought = json!({"role": "user", "content": "a", "reasoning_content": "hm"});
        assert_eq!(of(plain), of(thought));
        assert_ne!(of(json!({"a": "bc"})), of(json!({"ab": "c"})));
    }
}
