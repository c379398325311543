//! Responses and their turns as records of the state file.
//!
//! A record is JSON; its items are what clients are shown of them, which is read back as their
//! input would be. A turn's key is a number that grows from turn to turn; a response's is its owner
//! and its id. What cannot be read is left out and removed.

use crate::protocols::responses::held_bytes::HeldBytes;
use crate::protocols::responses::history::Item;
use crate::protocols::responses::input;
use crate::protocols::responses::turn::{StoredTurn, TURNS, TurnRecord, TurnTable};
use crate::protocols::warnings::Warnings;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use state::{Change, Commit, StateDir};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The key that a response was asked with, by its digest.
pub(crate) type Owner = Option<Arc<str>>;
/// The owner and the id of a response or conversation.
pub(crate) type Named = (Owner, String);

/// The tables.
pub(crate) const RESPONSES: &str = "responses";
/// The events of streamed responses that were made in the background.
pub(crate) const EVENTS: &str = "response_events";

/// The largest number of a turn: more than microseconds ever count.
const MAX_NUMBER: u64 = u64::MAX / 2;
/// Longest time that an answer waits until it is on disk.
const PATIENCE: Duration = Duration::from_secs(5);

/// The file, held by the store alone: turns that are dropped after it keep their records.
#[derive(Debug)]
pub(crate) struct Records {
    turns: Arc<TurnTable>,
    state: StateDir,
    /// The number of the last turn.
    last: AtomicU64,
}

/// A turn in the file.
#[derive(Deserialize)]
struct TurnText {
    parent: Option<u64>,
    space: [u8; 16],
    input: Value,
    output: Value,
}

/// A response in the file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ResponseText {
    /// The number of its turn.
    pub turn: u64,
    /// Seconds since 1970.
    pub created: u64,
    /// The response object.
    pub response: String,
    /// Of a response that has not ended: the request, with its seed and without its input.
    pub body: Option<String>,
    /// How often a crash has cut it off, counted when it is begun again.
    #[serde(default)]
    pub crashes: u32,
    /// It is streamed.
    pub streams: bool,
}

impl Records {
    pub fn new(state: StateDir) -> Arc<Self> {
        // Larger than every number that was given before, unless the clock was set back: then
        // those in the file decide.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let last = AtomicU64::new(u64::try_from(now.as_micros()).unwrap_or(0));
        let turns = Arc::new(TurnTable(state.clone()));
        Arc::new(Self { turns, state, last })
    }

    pub fn write(&self, changes: Vec<Change>) -> Commit {
        self.state.write(changes)
    }

    /// Adds to `changes` the records of `turn` and of those before it that have none, and gives
    /// its number.
    pub fn save(&self, turn: &StoredTurn, changes: &mut Vec<Change>) -> u64 {
        let fresh: Vec<_> = turn.chain().take_while(|turn| turn.record.get().is_none()).collect();
        for turn in fresh.into_iter().rev() {
            let parent = turn.parent.as_ref().and_then(|parent| parent.record.get());
            let items = |items: &[Arc<Item>]| items.iter().map(|item| item.json()).collect();
            let (input, output): (Vec<Value>, Vec<Value>) =
                (items(&turn.input), items(&turn.output));
            let text = json!({ "parent": parent.map(|parent| parent.number), "space": turn.space,
                               "input": input, "output": output });
            let next = || TurnRecord::new(self.next(), &self.turns);
            let number = turn.record.get_or_init(next).number;
            changes.push(Change::insert(TURNS, number.to_be_bytes(), text.to_string()));
        }
        turn.record.get().map_or(0, |record| record.number)
    }

    fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// All turns of the file by their numbers. Turns that nothing refers to lose their records
    /// when the map is dropped.
    pub fn turns(&self, held: &HeldBytes) -> HashMap<u64, Arc<StoredTurn>> {
        let mut turns: HashMap<u64, Arc<StoredTurn>> = HashMap::new();
        let mut removed = Vec::new();
        self.state.read(TURNS, |key, value| match self.turn(key, value, &turns, held) {
            Some((number, turn)) => drop(turns.insert(number, Arc::new(turn))),
            None => removed.push(Change::remove(TURNS, key)),
        });
        self.remove_unread(TURNS, removed);
        turns
    }

    fn turn(
        &self,
        key: &[u8],
        value: &[u8],
        turns: &HashMap<u64, Arc<StoredTurn>>,
        held: &HeldBytes,
    ) -> Option<(u64, StoredTurn)> {
        let number = u64::from_be_bytes(key.try_into().ok()?);
        if number > MAX_NUMBER {
            return None;
        }
        self.last.fetch_max(number, Ordering::Relaxed);
        let TurnText { parent, space, input, output } = serde_json::from_slice(value).ok()?;
        let parent = match parent {
            Some(parent) => Some(Arc::clone(turns.get(&parent)?)),
            None => None,
        };
        let turn = StoredTurn::new(parent, space, items(&input)?, items(&output)?, held);
        turn.record.get_or_init(|| TurnRecord::new(number, &self.turns));
        Some((number, turn))
    }

    /// The records of `table` with their owners and ids.
    pub fn named<T: DeserializeOwned + Send>(&self, table: &'static str) -> Vec<(Named, T)> {
        let (mut found, mut removed) = (Vec::new(), Vec::new());
        self.state.read(table, |key, value| {
            let record = serde_json::from_slice(value).ok();
            match name_of(key).zip(record) {
                Some(record) => found.push(record),
                None => removed.push(Change::remove(table, key)),
            }
        });
        self.remove_unread(table, removed);
        found
    }

    fn remove_unread(&self, table: &str, removed: Vec<Change>) {
        if !removed.is_empty() {
            tracing::warn!("{} records of {table} cannot be read and are removed", removed.len());
            self.write(removed);
        }
    }
}

/// The items of a list as [`Item::json`] writes them.
fn items(list: &Value) -> Option<Vec<Arc<Item>>> {
    let items = input::read(list, "items", &HashMap::new(), &mut Warnings::default()).ok()?;
    (items.len() == list.as_array()?.len()).then_some(items)
}

/// The key of the record of `name`.
pub(crate) fn key(name: &Named) -> Vec<u8> {
    let (owner, id) = name;
    format!("{}\0{id}", owner.as_deref().unwrap_or_default()).into_bytes()
}

fn name_of(key: &[u8]) -> Option<Named> {
    let (owner, id) = std::str::from_utf8(key).ok()?.split_once('\0')?;
    let owner = (!owner.is_empty()).then(|| owner.into());
    Some((owner, id.to_owned()))
}

/// Waits until what was written is on disk, within reason.
pub(crate) async fn settled(commit: Option<Commit>) {
    if let Some(commit) = commit
        && tokio::time::timeout(PATIENCE, commit.wait()).await.is_err()
    {
        tracing::warn!("the disk takes longer than {} s to write state", PATIENCE.as_secs());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::fields::ObjectReader;
    use crate::protocols::responses::history::CallItem;
    use crate::protocols::responses::settings::ConfigurationItem;
    use crate::protocols::responses::tools::CallKind;
    use crate::protocols::responses::tools_item::{ADDITIONAL, FOUND, ToolsItem};
    use api::Role;

    #[test]
    fn items_are_read_back_as_they_were() {
        let id = String::from;
        let message = |role: &str, texts: &[&str]| {
            let texts = texts.iter().map(|text| (*text).to_owned()).collect();
            Item::Message { id: id("msg_1"), role: Role::from(role), texts }
        };
        let call = |kind: CallKind| {
            let (call_id, name, input) = ("call_1".into(), "f".into(), "{\"a\": 1".into());
            let namespace = (kind == CallKind::Function).then(|| "n".into());
            Item::Call(CallItem { id: id("fc_1"), call_id, name, namespace, input, kind })
        };
        let added = |kind| {
            let item = json!({"id": "t", "call_id": "c", "execution": "client",
                              "tools": [{"type": "function", "name": "f"}]});
            let fields = ObjectReader::of(&item, "").unwrap();
            Item::Tools(ToolsItem::read(&fields, kind, &mut Warnings::default()).unwrap())
        };
        let all = [
            message("user", &["a", "b\n"]),
            message("assistant", &[""]),
            message("assistant", &[]),
            message("system", &["s"]),
            message("developer", &["d"]),
            Item::Reasoning { id: id("rs_1"), text: "hm\n".into() },
            Item::Reasoning { id: id("rs_2"), text: String::new() },
            call(CallKind::Custom),
            call(CallKind::Function),
            Item::Call(CallItem {
                id: id("tsc_1"),
                call_id: id("c"),
                name: id("tool_search"),
                namespace: None,
                input: id("{\"a\":1}"),
                kind: CallKind::Search,
            }),
            added(ADDITIONAL),
            added(FOUND),
            Item::Configuration(ConfigurationItem {
                id: id("cu_1"),
                effort: Some(id("low")),
                format: Some(json!({"type": "text"})),
            }),
            Item::Result { id: id("o"), call_id: id("c"), text: "é".into(), custom: true },
            Item::Result { id: id("o"), call_id: id("c"), text: String::new(), custom: false },
            Item::Compaction { id: id("cmp_1"), summary: "sum".into() },
        ];
        for item in all {
            let read = items(&json!([item.json()])).unwrap();
            assert_eq!(*read[0], item);
        }
        assert!(items(&json!([{"type": "web_search_call"}])).is_none());
    }

    #[test]
    fn keys_are_read_back() {
        for name in [(None, "resp_1".to_owned()), (Some("ab".into()), "resp_1".to_owned())] {
            assert_eq!(name_of(&key(&name)), Some(name));
        }
        assert_eq!(name_of(b"x"), None);
        assert_eq!(name_of(b"\xff\0x"), None);
    }
}
