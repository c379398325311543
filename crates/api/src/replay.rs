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
//! refer to. The least recently used turns are evicted first. Where there are records, they hold
//! the turns that memory holds, and those of other models, which are evicted before all.

use crate::message::Message;
use crate::replay_turn::{Digested, ReplayTurn, Weight};
use crate::turn_encoding::{Decoded, ModelDigest, Unused, decode, encode};
use crate::turn_records::{KeptRecord, TurnRecords};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most ids of calls.
const MAX_IDS: usize = 100_000;
/// Most bytes of tokens and texts.
const MAX_BYTES: usize = 256 << 20;

/// The largest number of a record: more than microseconds ever count.
const MAX_NUMBER: u64 = u64::MAX / 2;

/// Members that some clients omit when they return a message.
const HIDDEN: [&str; 4] = ["reasoning", "refusal", "audio", "annotations"];

/// The turns of all conversations.
#[derive(Debug, Default)]
pub(crate) struct ReplayMemory(Mutex<ReplayState>);

#[derive(Debug, Default)]
struct ReplayState {
    /// Records of the turns. They are dropped first, so that turns dropped with the memory stay.
    records: Option<ModelRecords>,
    /// For each call id, the number of the last use of its turn.
    ids: HashMap<String, u64>,
    turns: BTreeMap<u64, Arc<ReplayTurn>>,
    /// Bytes of all turns that are alive.
    bytes: Arc<AtomicUsize>,
    uses: u64,
}

/// The records of one model, among those of others.
#[derive(Debug)]
struct ModelRecords {
    records: Arc<dyn TurnRecords>,
    model: ModelDigest,
    /// The number of the last turn.
    last: u64,
    /// Keys and bytes of records of other models, the oldest first, and their sum.
    foreign: VecDeque<(Vec<u8>, usize)>,
    foreign_bytes: usize,
}

impl ReplayMemory {
    /// A memory with the turns of `model` in `records`.
    pub fn open(records: Arc<dyn TurnRecords>, model: ModelDigest) -> Self {
        let state =
            ReplayState { records: Some(ModelRecords::new(records, model)), ..Default::default() };
        let memory = Self(Mutex::new(state));
        memory.lock().load();
        memory
    }

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
        if let Some(records) = &mut self.records {
            records.add(&mut turn);
        }
        self.place(Arc::new(turn));
        self.trim();
    }

    /// Adds the turns of the records, the last of which counts as used last.
    fn load(&mut self) {
        let Some(model) = &mut self.records else { return };
        let mut turns: BTreeMap<u64, Arc<ReplayTurn>> = BTreeMap::new();
        let mut unused = Vec::new();
        let (records, bytes) = (Arc::clone(&model.records), &self.bytes);
        records.read(&mut |key, value| match model.turn(key, value, &turns, bytes) {
            Ok((number, turn)) => drop(turns.insert(number, Arc::new(turn))),
            Err(Unused::Foreign) => model.add_foreign(key, value.len()),
            Err(Unused::Damaged) => unused.push(key.to_vec()),
        });
        if !unused.is_empty() {
            tracing::warn!("{} turns with calls cannot be read and are removed", unused.len());
            unused.iter().for_each(|key| records.remove(key));
        }
        turns.into_values().for_each(|turn| self.place(turn));
        self.trim();
    }

    /// Evicts until the limits are kept.
    fn trim(&mut self) {
        let foreign = |records: &Option<ModelRecords>| {
            records.as_ref().map_or(0, |records| records.foreign_bytes)
        };
        // A turn that others refer to is freed with the last of them.
        while self.ids.len() > MAX_IDS
            || self.bytes.load(Ordering::Relaxed) + foreign(&self.records) > MAX_BYTES
        {
            if self.records.as_mut().is_some_and(ModelRecords::evict_foreign) {
                continue;
            }
            let Some((_, oldest)) = self.turns.pop_first() else { return };
            for id in oldest.calls.iter().filter_map(|call| call.id.as_ref()) {
                self.ids.remove(id);
            }
        }
    }
}

impl ModelRecords {
    fn new(records: Arc<dyn TurnRecords>, model: ModelDigest) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let last = u64::try_from(now.as_micros()).unwrap_or(0);
        Self { records, model, last, foreign: VecDeque::new(), foreign_bytes: 0 }
    }

    /// Adds the record of `turn`. A turn whose parent has none gets none either.
    fn add(&mut self, turn: &mut ReplayTurn) {
        let parent = turn.parent.as_ref().map(|parent| parent.record.as_ref());
        let parent = match parent {
            Some(None) => return,
            parent => parent.flatten().map(|record| record.number),
        };
        self.last += 1;
        self.records.insert(&self.last.to_be_bytes(), encode(turn, parent, self.model));
        let records = Arc::downgrade(&self.records);
        turn.record = Some(KeptRecord { number: self.last, records });
    }

    /// The turn of a record, whose parent is among `turns`.
    fn turn(
        &mut self,
        key: &[u8],
        value: &[u8],
        turns: &BTreeMap<u64, Arc<ReplayTurn>>,
        held: &Arc<AtomicUsize>,
    ) -> Result<(u64, ReplayTurn), Unused> {
        let number = u64::from_be_bytes(key.try_into().map_err(|_| Unused::Damaged)?);
        if number > MAX_NUMBER {
            return Err(Unused::Damaged);
        }
        self.last = self.last.max(number);
        let Decoded { mut turn, parent } = decode(value, self.model)?;
        if let Some(parent) = parent {
            turn.parent = Some(Arc::clone(turns.get(&parent).ok_or(Unused::Damaged)?));
        }
        turn.weight = Weight::new(turn.bytes(), held);
        turn.record = Some(KeptRecord { number, records: Arc::downgrade(&self.records) });
        Ok((number, turn))
    }

    fn add_foreign(&mut self, key: &[u8], bytes: usize) {
        self.foreign_bytes += bytes;
        self.foreign.push_back((key.to_vec(), bytes));
    }

    /// Removes the oldest record of another model, if there is one.
    fn evict_foreign(&mut self) -> bool {
        let Some((key, bytes)) = self.foreign.pop_front() else { return false };
        self.foreign_bytes -= bytes;
        self.records.remove(&key);
        true
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn_records::MapOfRecords;

    fn message(id: &str, arguments: Value) -> Message {
        let call = json!({"id": id, "function": {"name": "f", "arguments": arguments}});
        Message { calls: vec![call.into()], ..Message::assistant("so") }
    }

    fn turn(id: &str, parent: Option<Arc<ReplayTurn>>) -> ReplayTurn {
        let calls = message(id, json!({"a": 1, "b": 2})).calls;
        let (prompt, sampled) = (vec![1, 2], vec![3]);
        ReplayTurn {
            calls,
            content: "so".into(),
            before: [7; 32],
            parent,
            prompt,
            sampled,
            weight: Weight::default(),
            record: None,
        }
    }

    fn finds(memory: &ReplayMemory, id: &str) -> Option<Arc<ReplayTurn>> {
        let messages = [message(id, json!({"a": 1, "b": 2}))];
        memory.find(&messages, |_| [7; 32]).map(|(_, turn)| turn)
    }

    fn open(records: &Arc<MapOfRecords>, model: u8) -> ReplayMemory {
        ReplayMemory::open(Arc::new(Arc::clone(records)), [model; 16])
    }

    fn count(records: &Arc<MapOfRecords>) -> usize {
        records.0.lock().unwrap().len()
    }

    #[test]
    fn turns_outlive_the_memory_for_their_own_model() {
        let records = Arc::new(MapOfRecords::default());
        let memory = open(&records, 1);
        memory.remember(turn("x", None));
        let parent = finds(&memory, "x");
        memory.remember(turn("y", parent));
        drop(memory);
        assert_eq!(count(&records), 2);
        let other = open(&records, 2);
        assert!(finds(&other, "x").is_none() && finds(&other, "y").is_none());
        other.remember(turn("z", None));
        drop(other);
        let memory = open(&records, 1);
        assert_eq!(finds(&memory, "y").unwrap().tokens(), [1, 2, 3, 1, 2, 3]);
        assert!(finds(&memory, "x").is_some() && finds(&memory, "z").is_none());
        assert_eq!(count(&records), 3);
    }

    #[test]
    fn records_that_are_damaged_or_have_no_parent_are_removed() {
        let records = Arc::new(MapOfRecords::default());
        let memory = open(&records, 1);
        memory.remember(turn("x", None));
        let parent = finds(&memory, "x");
        memory.remember(turn("y", parent));
        memory.remember(turn("z", None));
        drop(memory);
        records.0.lock().unwrap().first_entry().unwrap().get_mut()[40] ^= 1;
        records.0.lock().unwrap().insert(b"odd".to_vec(), Vec::new());
        records.0.lock().unwrap().insert(u64::MAX.to_be_bytes().to_vec(), Vec::new());
        let memory = open(&records, 1);
        let found = ["x", "y", "z"].map(|id| finds(&memory, id).is_some());
        assert_eq!((found, count(&records)), ([false, false, true], 1));
    }

    #[test]
    fn records_of_other_models_go_before_turns_of_this_one() {
        let records = Arc::new(MapOfRecords::default());
        let large = |id: &str| {
            let mut turn = turn(id, None);
            turn.sampled = vec![0; MAX_BYTES / 4 / 5 * 2];
            turn
        };
        let memory = open(&records, 1);
        memory.remember(large("a"));
        drop(memory);
        let other = open(&records, 2);
        other.remember(large("b"));
        assert_eq!(count(&records), 2);
        other.remember(large("c"));
        assert_eq!(count(&records), 2);
        assert!(finds(&other, "b").is_some() && finds(&other, "c").is_some());
        other.remember(large("d"));
        assert_eq!(count(&records), 2);
        assert!(finds(&other, "b").is_none());
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
