//! The responses that are stored, each for the key that it was asked with, and the conversations
//! that they continue.
//!
//! Invariants: the number of finished responses is limited, and so is their age. While there are
//! more, or everything stored takes more bytes than the limit, the finished response used longest
//! ago is removed; conversations go after all responses. With a state file, the file holds what
//! memory holds.

use crate::http::app::unix_now;
use crate::protocols::responses::background::Background;
use crate::protocols::responses::conversations::ConversationStore;
use crate::protocols::responses::held_bytes::{ByteCharge, HeldBytes};
use crate::protocols::responses::history::Item;
use crate::protocols::responses::records::{
    EVENTS, Named, Owner, RESPONSES, Records, ResponseText, key,
};
use crate::protocols::responses::turn::StoredTurn;
use indexmap::IndexMap;
use serde_json::{Value, json};
use state::{Change, Commit, StateDir};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a response is begun again before it has failed: it may be what makes servers crash.
const MAX_CRASHES: u32 = 3;

/// What may be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreLimits {
    pub responses: usize,
    /// Bytes in memory of everything stored.
    pub bytes: usize,
    /// Since a response was asked for.
    pub age: Duration,
}

/// All stored responses.
#[derive(Debug)]
pub(crate) struct ResponseStore {
    /// The file. It is dropped first, so that turns that are dropped with the store stay in it.
    records: Option<Arc<Records>>,
    limits: StoreLimits,
    /// The count that everything stored is charged to.
    pub held: HeldBytes,
    responses: Mutex<Responses>,
    pub conversations: Arc<ConversationStore>,
}

/// Responses in the order of their last use.
type Responses = IndexMap<Named, Arc<StoredResponse>>;

/// A response, and the turn that the next response continues.
#[derive(Debug)]
pub(crate) struct StoredResponse {
    /// The response object.
    pub json: String,
    pub turn: Arc<StoredTurn>,
    /// Seconds since 1970 when it was asked for.
    pub created: u64,
    /// It has not ended.
    pub running: bool,
    /// The work on a response that is or was made in the background.
    pub background: Option<Arc<Background>>,
    _charge: ByteCharge,
}

impl StoredResponse {
    /// A response that is charged to `held`.
    pub fn new(
        json: String,
        turn: Arc<StoredTurn>,
        created: u64,
        running: bool,
        background: Option<Arc<Background>>,
        held: &HeldBytes,
    ) -> Self {
        let _charge = held.charge(size_of::<Self>() + json.len());
        Self { json, turn, created, running, background, _charge }
    }
}

impl ResponseStore {
    /// A store in memory.
    pub fn new(limits: StoreLimits) -> Self {
        Self::over(limits, None)
    }

    fn over(limits: StoreLimits, records: Option<Arc<Records>>) -> Self {
        let held = HeldBytes::default();
        let file = records.as_ref().map(Arc::downgrade).unwrap_or_default();
        let conversations = ConversationStore::new(limits.responses, held.clone(), file);
        let (responses, conversations) = (Mutex::default(), Arc::new(conversations));
        Self { records, limits, held, responses, conversations }
    }

    /// A store with the responses of `state`. Responses in progress can be resumed, unless
    /// `resumes` is false: then they have failed.
    pub fn open(limits: StoreLimits, state: StateDir, resumes: bool) -> Self {
        let records = Records::new(state);
        let store = Self::over(limits, Some(Arc::clone(&records)));
        let turns = records.turns(&store.held);
        let mut found = records.named::<ResponseText>(RESPONSES);
        found.sort_by_key(|(_, text)| text.turn);
        let mut events: HashMap<_, String> = records.named(EVENTS).into_iter().collect();
        for (name, text) in found {
            let events = events.remove(&name);
            match turns.get(&text.turn) {
                Some(turn) => store.restore(name, text, Arc::clone(turn), events, resumes),
                None => drop(records.write(vec![Change::remove(RESPONSES, key(&name))])),
            }
        }
        let stray = events.keys().map(|name| Change::remove(EVENTS, key(name)));
        records.write(stray.collect());
        store.conversations.restore(&turns);
        drop(turns);
        store.trim(&mut store.responses());
        store
    }

    /// Adds a response of the file.
    fn restore(
        &self,
        name: Named,
        text: ResponseText,
        turn: Arc<StoredTurn>,
        events: Option<String>,
        resumes: bool,
    ) {
        let ResponseText { created, mut response, body, crashes, streams, .. } = text;
        let cut_off = body.is_some();
        let running = cut_off && resumes && crashes < MAX_CRASHES;
        let background = match events {
            _ if running => {
                let work = Background::new(streams, body, &self.held);
                work.crashes.store(crashes + 1, Ordering::Relaxed);
                Some(work)
            }
            Some(events) => Some(Background::ended(&events, &self.held)),
            None => None,
        };
        if cut_off && !running {
            response = failed(&response, "the server ended before the response was complete");
        }
        let background = background.map(Arc::new);
        let stored = StoredResponse::new(response, turn, created, running, background, &self.held);
        if cut_off {
            self.put(&name.0, &name.1, stored, true);
        } else {
            self.responses().insert(name, Arc::new(stored));
        }
    }

    /// The responses that have not ended: those to resume, before others are asked for.
    pub fn interrupted(&self) -> Vec<(Named, Arc<StoredResponse>)> {
        let responses = self.responses();
        let running = responses.iter().filter(|(_, response)| response.running);
        running.map(|(name, response)| (name.clone(), Arc::clone(response))).collect()
    }

    /// Stores that the response of this name has failed, if it is there.
    pub fn fail(&self, (owner, id): &Named, message: &str) {
        let Some(response) = self.get(owner, id) else { return };
        let (json, turn) = (failed(&response.json, message), Arc::clone(&response.turn));
        let failed = StoredResponse::new(json, turn, response.created, false, None, &self.held);
        self.put(owner, id, failed, false);
    }

    /// Whether responses outlive the process.
    pub fn is_kept(&self) -> bool {
        self.records.is_some()
    }

    /// Stores `response` under `id`, in place of the one that is there. If it is not new and none
    /// is there, it was removed and stays so.
    pub fn put(
        &self,
        owner: &Owner,
        id: &str,
        response: StoredResponse,
        is_new: bool,
    ) -> Option<Commit> {
        let name = (owner.clone(), id.to_owned());
        let response = Arc::new(response);
        let changes = self.records.as_ref().map(|records| changes(records, &name, &response));
        let mut responses = self.responses();
        // Held until the new record is written: with it goes the record of its turn.
        let before = responses.shift_remove(&name);
        if before.is_none() && !is_new {
            return None;
        }
        responses.insert(name, response);
        // Under the lock, so that a removal comes after it.
        let commit = self.records.as_ref().zip(changes).map(|(file, changes)| file.write(changes));
        drop(before);
        self.trim(&mut responses);
        commit
    }

    /// Stores the events of the response `id`, if it is there.
    pub fn put_events(&self, owner: &Owner, id: &str, events: String) -> Option<Commit> {
        let name = (owner.clone(), id.to_owned());
        let records = self.records.as_ref()?;
        let change = Change::put(EVENTS, key(&name), json!(events).to_string());
        let responses = self.responses();
        responses.contains_key(&name).then(|| records.write(vec![change]))
    }

    /// The response `id` of `owner`.
    pub fn get(&self, owner: &Owner, id: &str) -> Option<Arc<StoredResponse>> {
        let mut responses = self.responses();
        let (name, response) = responses.shift_remove_entry(&(owner.clone(), id.to_owned()))?;
        if self.is_expired(&response) {
            self.forget(&name);
            return None;
        }
        responses.insert(name, Arc::clone(&response));
        Some(response)
    }

    /// Removes the response `id` of `owner`.
    pub fn remove(&self, owner: &Owner, id: &str) -> Option<Commit> {
        let name = (owner.clone(), id.to_owned());
        let mut responses = self.responses();
        responses.shift_remove(&name)?;
        self.forget(&name)
    }

    /// Removes a response from the file.
    fn forget(&self, name: &Named) -> Option<Commit> {
        let records = self.records.as_ref()?;
        let tables = [RESPONSES, EVENTS].map(|table| Change::remove(table, key(name)));
        Some(records.write(tables.to_vec()))
    }

    fn is_expired(&self, response: &StoredResponse) -> bool {
        let age = unix_now().saturating_sub(response.created);
        !response.running && age > self.limits.age.as_secs()
    }

    /// The items with these ids that finished responses of `owner` in the part `space` hold.
    pub fn items(
        &self,
        owner: &Owner,
        space: [u8; 16],
        ids: &HashSet<String>,
    ) -> HashMap<String, Arc<Item>> {
        let mut found = HashMap::new();
        if ids.is_empty() {
            return found;
        }
        // Not searched under the lock.
        let all = self.responses().clone();
        for ((of, _), response) in all {
            if of != *owner || response.turn.space != space || response.running {
                continue;
            }
            for item in response.turn.input.iter().chain(&response.turn.output) {
                if ids.contains(item.id()) {
                    found.insert(item.id().to_owned(), Arc::clone(item));
                }
            }
        }
        found
    }

    /// Frees memory by removing responses, and says whether that was enough: what connections hold
    /// counts too, and is not removed.
    pub fn fits(&self) -> bool {
        self.trim(&mut self.responses());
        self.held.bytes() <= self.limits.bytes
    }

    /// Removes finished responses until the limits are kept. A turn that another response continues
    /// stays until that is removed.
    fn trim(&self, responses: &mut Responses) {
        responses.retain(|name, response| {
            let stays = !self.is_expired(response);
            if !stays {
                self.forget(name);
            }
            stays
        });
        let mut finished = responses.values().filter(|response| !response.running).count();
        while finished > self.limits.responses || self.held.bytes() > self.limits.bytes {
            let oldest = responses.values().position(|response| !response.running);
            let Some((name, _)) = oldest.and_then(|at| responses.shift_remove_index(at)) else {
                break;
            };
            self.forget(&name);
            finished -= 1;
        }
        self.conversations.trim(|| self.held.bytes() > self.limits.bytes);
    }

    fn responses(&self) -> MutexGuard<'_, Responses> {
        // Each change leaves them whole.
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The records of a response and its turns.
fn changes(records: &Arc<Records>, name: &Named, response: &StoredResponse) -> Vec<Change> {
    let mut changes = Vec::new();
    let turn = records.save(&response.turn, &mut changes);
    let background = response.background.as_ref();
    let text = ResponseText {
        turn,
        created: response.created,
        response: response.json.clone(),
        body: background.filter(|_| response.running).and_then(|work| work.body.clone()),
        crashes: background.map_or(0, |work| work.crashes.load(Ordering::Relaxed)),
        streams: background.is_some_and(|work| work.streams),
    };
    changes.push(Change::put(RESPONSES, key(name), json!(text).to_string()));
    changes
}

/// The response object of one that the server could not complete.
fn failed(response: &str, message: &str) -> String {
    let Ok(mut response) = serde_json::from_str::<Value>(response) else {
        return response.to_owned();
    };
    response["status"] = "failed".into();
    response["error"] = json!({ "code": "server_error", "message": message });
    response.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Role;

    const ALL: [u8; 16] = [0; 16];

    fn owner(name: &str) -> Owner {
        Some(name.into())
    }

    fn item(id: &str, text: &str) -> Arc<Item> {
        let texts = vec![text.to_owned()];
        Arc::new(Item::Message { id: id.into(), role: Role::User, texts })
    }

    fn store(responses: usize, bytes: usize) -> ResponseStore {
        let age = Duration::from_secs(60);
        ResponseStore::new(StoreLimits { responses, bytes, age })
    }

    fn finished(turn: Arc<StoredTurn>, created: u64, held: &HeldBytes) -> StoredResponse {
        StoredResponse::new("{}".into(), turn, created, false, None, held)
    }

    fn keep(
        store: &ResponseStore,
        of: &str,
        id: &str,
        parent: Option<Arc<StoredTurn>>,
    ) -> Arc<StoredTurn> {
        keep_since(unix_now(), store, of, id, parent)
    }

    /// Keeps a response that was asked for at the time `created`.
    fn keep_since(
        created: u64,
        store: &ResponseStore,
        of: &str,
        id: &str,
        parent: Option<Arc<StoredTurn>>,
    ) -> Arc<StoredTurn> {
        let input = vec![item(&format!("in_{id}"), "question")];
        let turn = Arc::new(StoredTurn::new(parent, ALL, input, Vec::new(), &store.held));
        let response = finished(turn, created, &store.held);
        let turn = Arc::clone(&response.turn);
        store.put(&owner(of), id, response, true);
        turn
    }

    fn has(store: &ResponseStore, of: &str, id: &str) -> bool {
        store.get(&owner(of), id).is_some()
    }

    #[test]
    fn the_one_used_longest_ago_goes_first() {
        let store = store(2, usize::MAX);
        keep(&store, "a", "1", None);
        keep(&store, "a", "2", None);
        assert!(has(&store, "a", "1"));
        keep(&store, "a", "3", None);
        assert!(has(&store, "a", "1") && !has(&store, "a", "2") && has(&store, "a", "3"));
    }

    #[test]
    fn a_key_sees_its_own_only() {
        let store = store(9, usize::MAX);
        keep(&store, "a", "1", None);
        assert!(has(&store, "a", "1") && !has(&store, "b", "1"));
        assert!(store.get(&None, "1").is_none());
        store.remove(&owner("b"), "1");
        assert!(has(&store, "a", "1"));
        let ids = HashSet::from(["in_1".to_owned(), "in_2".to_owned()]);
        assert_eq!(store.items(&owner("a"), ALL, &ids).len(), 1);
        assert!(store.items(&owner("b"), ALL, &ids).is_empty());
        assert!(store.items(&owner("a"), [1; 16], &ids).is_empty());
    }

    #[test]
    fn bytes_are_bounded_with_their_histories() {
        let store = store(1000, 20_000);
        let mut last = None;
        for number in 0..1000 {
            last = Some(keep(&store, "a", &number.to_string(), last));
            assert!(store.held.bytes() <= 20_000 || number > 0 && store.responses().is_empty());
        }
        drop(last);
        assert!(store.held.bytes() <= 20_000);
    }

    #[test]
    fn what_is_removed_is_not_put_back_by_its_end() {
        let store = store(9, usize::MAX);
        keep(&store, "a", "1", None);
        store.remove(&owner("a"), "1");
        let turn = Arc::new(StoredTurn::new(None, ALL, Vec::new(), Vec::new(), &store.held));
        let ended = finished(turn, unix_now(), &store.held);
        store.put(&owner("a"), "1", ended, false);
        assert!(!has(&store, "a", "1"));
    }

    /// A store over the state file of `folder`, and the file.
    fn opened(folder: &std::path::Path, limits: StoreLimits) -> (ResponseStore, StateDir) {
        let state = StateDir::open(folder).unwrap();
        (ResponseStore::open(limits, state.clone(), false), state)
    }

    fn generous() -> StoreLimits {
        StoreLimits { responses: 9, bytes: 1 << 20, age: Duration::from_secs(60) }
    }

    /// The number of records of each table, once `state` is written.
    fn records(folder: &std::path::Path, state: StateDir) -> [usize; 3] {
        state.finish();
        let state = StateDir::open(folder).unwrap();
        [RESPONSES, EVENTS, "turns"].map(|table| {
            let mut count = 0;
            state.read(table, |_, _| count += 1);
            count
        })
    }

    #[test]
    fn what_is_stored_survives_and_what_is_removed_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let (store, state) = opened(folder.path(), generous());
        let first = keep(&store, "a", "1", None);
        let second = keep(&store, "a", "2", Some(first));
        drop(keep(&store, "b", "3", None));
        store.put_events(&owner("a"), "2", "event: x\n\n".into());
        // The turn of the first stays, since the second continues it.
        store.remove(&owner("a"), "1");
        drop((second, store));
        assert_eq!(records(folder.path(), state), [2, 1, 3]);
        let (store, state) = opened(folder.path(), generous());
        assert!(!has(&store, "a", "1") && has(&store, "b", "3") && !has(&store, "b", "2"));
        let found = store.get(&owner("a"), "2").unwrap();
        assert_eq!(found.background.as_ref().unwrap().events().unwrap(), "event: x\n\n");
        let ids: Vec<_> = found.turn.items().iter().map(|item| item.id().to_owned()).collect();
        assert_eq!(ids, ["in_1", "in_2"]);
        drop(found);
        store.remove(&owner("a"), "2");
        drop(store);
        assert_eq!(records(folder.path(), state), [1, 0, 1]);
    }

    #[test]
    fn the_file_keeps_the_limits_of_memory() {
        let folder = tempfile::tempdir().unwrap();
        let limits = StoreLimits { responses: 2, ..generous() };
        let (store, state) = opened(folder.path(), limits);
        let before = unix_now() - 3;
        (0..5).for_each(|id| drop(keep_since(before, &store, "a", &id.to_string(), None)));
        drop(store);
        assert_eq!(records(folder.path(), state), [2, 0, 2]);
        // A lower limit removes the oldest, and age all.
        let (store, state) = opened(folder.path(), StoreLimits { responses: 1, ..generous() });
        assert!(!has(&store, "a", "3") && has(&store, "a", "4"));
        drop(store);
        state.finish();
        drop(state);
        let young = StoreLimits { age: Duration::from_secs(1), ..generous() };
        let (store, state) = opened(folder.path(), young);
        assert!(!has(&store, "a", "4"));
        drop(store);
        assert_eq!(records(folder.path(), state), [0, 0, 0]);
    }

    #[test]
    fn records_that_cannot_be_read_are_left_out_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (store, state) = opened(folder.path(), generous());
        drop(keep(&store, "a", "1", None));
        let turn = 7u64.to_be_bytes();
        let orphan = json!({"turn": 7, "created": unix_now(), "response": "{}",
                            "body": null, "streams": false});
        state.write([
            Change::put("turns", turn, "{\"parent\": 3}"),
            Change::put("turns", "odd", "x"),
            Change::put("turns", u64::MAX.to_be_bytes(), "{}"),
            Change::put(RESPONSES, "a\0orphan", orphan.to_string()),
            Change::put(RESPONSES, "a\0broken", "{"),
            Change::put(RESPONSES, b"\xff", "{}"),
            Change::put(EVENTS, "a\0none", "\"\""),
        ]);
        drop(store);
        state.finish();
        drop(state);
        let (store, state) = opened(folder.path(), generous());
        assert!(has(&store, "a", "1") && !has(&store, "a", "orphan"));
        drop(store);
        assert_eq!(records(folder.path(), state), [1, 0, 1]);
    }

    #[test]
    fn responses_that_are_not_resumed_have_failed() {
        check_resumed(true, [true, true, true, false]);
        check_resumed(false, [false; 4]);
    }

    fn check_resumed(resumes: bool, expected: [bool; 4]) {
        let folder = tempfile::tempdir().unwrap();
        let (store, state) = opened(folder.path(), generous());
        let turn = StoredTurn::new(None, ALL, vec![item("q", "q")], Vec::new(), &store.held);
        let work = Background::new(true, Some("{}".into()), &store.held);
        let (json, turn) = ("{\"status\": \"queued\"}".to_owned(), Arc::new(turn));
        let work = Some(Arc::new(work));
        let running = StoredResponse::new(json, turn, unix_now(), true, work, &store.held);
        store.put(&owner("a"), "1", running, true);
        drop(store);
        state.finish();
        drop(state);
        let is_resumed = |resumes| {
            let state = StateDir::open(folder.path()).unwrap();
            let store = ResponseStore::open(generous(), state.clone(), resumes);
            let response = store.get(&owner("a"), "1").unwrap();
            let response: Value = serde_json::from_str(&response.json).unwrap();
            let resumed = !store.interrupted().is_empty();
            assert_eq!(response["error"]["code"] == "server_error", !resumed, "{response}");
            assert_eq!(response["status"] == "failed", !resumed);
            drop(store);
            state.finish();
            resumed
        };
        // Crash after crash it is begun again, but not for ever.
        assert_eq!([(); 4].map(|()| is_resumed(resumes)), expected);
    }
}
