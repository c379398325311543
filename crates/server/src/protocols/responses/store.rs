//! The responses that are stored, each for the key that it was asked with, and the conversations
//! that they continue.
//!
//! Invariants: the number of finished responses is limited. While there are more, or everything
//! stored takes more bytes than the limit, the finished response used longest ago is removed. The
//! bytes of a turn are counted until the last response that can reach it is gone.

use crate::protocols::responses::background::Background;
use crate::protocols::responses::held_bytes::{ByteCharge, HeldBytes};
use crate::protocols::responses::history::Item;
use indexmap::IndexMap;
use std::collections::{HashMap, HashSet};
use std::iter::successors;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The key that a response was asked with, by its name.
pub(crate) type Owner = Option<Arc<str>>;

/// All stored responses.
#[derive(Debug)]
pub(crate) struct ResponseStore {
    max_responses: usize,
    max_bytes: usize,
    /// The count that everything stored is charged to.
    pub held: HeldBytes,
    responses: Mutex<Responses>,
}

/// Responses in the order of their last use.
type Responses = IndexMap<(Owner, String), Arc<StoredResponse>>;

/// A response, and the turn that the next response continues.
#[derive(Debug)]
pub(crate) struct StoredResponse {
    /// The response object.
    pub json: String,
    pub turn: Arc<StoredTurn>,
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
        running: bool,
        background: Option<Arc<Background>>,
        held: &HeldBytes,
    ) -> Self {
        let _charge = held.charge(size_of::<Self>() + json.len());
        Self { json, turn, running, background, _charge }
    }
}

impl ResponseStore {
    /// A store of at most so many responses and bytes.
    pub fn new(max_responses: usize, max_bytes: usize) -> Self {
        let (held, responses) = Default::default();
        Self { max_responses, max_bytes, held, responses }
    }

    /// Stores `response` under `id`, in place of the one that is there. If it is not new and none
    /// is there, it was removed and stays so.
    pub fn put(&self, owner: &Owner, id: &str, response: StoredResponse, is_new: bool) {
        let name = (owner.clone(), id.to_owned());
        let mut responses = self.responses();
        if responses.shift_remove(&name).is_none() && !is_new {
            return;
        }
        responses.insert(name, Arc::new(response));
        self.trim(&mut responses);
    }

    /// The response `id` of `owner`.
    pub fn get(&self, owner: &Owner, id: &str) -> Option<Arc<StoredResponse>> {
        let mut responses = self.responses();
        let (name, response) = responses.shift_remove_entry(&(owner.clone(), id.to_owned()))?;
        responses.insert(name, Arc::clone(&response));
        Some(response)
    }

    /// Removes the response `id` of `owner`.
    pub fn remove(&self, owner: &Owner, id: &str) -> Option<Arc<StoredResponse>> {
        self.responses().shift_remove(&(owner.clone(), id.to_owned()))
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
        self.held.bytes() <= self.max_bytes
    }

    /// Removes finished responses until the limits are kept. A turn that another response continues
    /// stays until that is removed.
    fn trim(&self, responses: &mut Responses) {
        let mut finished = responses.values().filter(|response| !response.running).count();
        while finished > self.max_responses || self.held.bytes() > self.max_bytes {
            let oldest = responses.values().position(|response| !response.running);
            let Some(oldest) = oldest else { return };
            responses.shift_remove_index(oldest);
            finished -= 1;
        }
    }

    fn responses(&self) -> MutexGuard<'_, Responses> {
        // Each change leaves them whole.
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The input and the output of a response.
#[derive(Debug)]
pub(crate) struct StoredTurn {
    parent: Option<Arc<StoredTurn>>,
    /// The part of its key's responses: its users and salts have parts of their own.
    pub space: [u8; 16],
    pub input: Vec<Arc<Item>>,
    pub output: Vec<Arc<Item>>,
    _charge: ByteCharge,
}

impl StoredTurn {
    /// A turn that continues `parent`.
    pub fn new(
        parent: Option<Arc<StoredTurn>>,
        space: [u8; 16],
        input: Vec<Arc<Item>>,
        output: Vec<Arc<Item>>,
        held: &HeldBytes,
    ) -> Self {
        let bytes = input.iter().chain(&output).map(|item| item.size()).sum::<usize>();
        Self { parent, space, input, output, _charge: held.charge(bytes + size_of::<Self>()) }
    }

    /// All items of the conversation, answers included.
    pub fn items(&self) -> Vec<Arc<Item>> {
        let mut turns: Vec<_> = successors(Some(self), |turn| turn.parent.as_deref()).collect();
        turns.reverse();
        turns.iter().flat_map(|turn| [&turn.input[..], &turn.output].concat()).collect()
    }

    /// All items but this turn's answer.
    pub fn asked(&self) -> Vec<Arc<Item>> {
        conversation(self.parent.as_deref(), &self.input)
    }
}

/// The items of `parent` and those before it, then `input`.
pub(crate) fn conversation(parent: Option<&StoredTurn>, input: &[Arc<Item>]) -> Vec<Arc<Item>> {
    let mut items = parent.map(StoredTurn::items).unwrap_or_default();
    items.extend_from_slice(input);
    items
}

/// Drops a chain of turns in a loop, since recursion could exhaust the stack.
impl Drop for StoredTurn {
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(turn) = next {
            next = Arc::into_inner(turn).and_then(|mut turn| turn.parent.take());
        }
    }
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

    fn keep(
        store: &ResponseStore,
        of: &str,
        id: &str,
        parent: Option<Arc<StoredTurn>>,
    ) -> Arc<StoredTurn> {
        let input = vec![item(&format!("in_{id}"), "question")];
        let turn = Arc::new(StoredTurn::new(parent, ALL, input, Vec::new(), &store.held));
        let response = StoredResponse::new("{}".into(), turn, false, None, &store.held);
        let turn = Arc::clone(&response.turn);
        store.put(&owner(of), id, response, true);
        turn
    }

    fn has(store: &ResponseStore, of: &str, id: &str) -> bool {
        store.get(&owner(of), id).is_some()
    }

    #[test]
    fn the_one_used_longest_ago_goes_first() {
        let store = ResponseStore::new(2, usize::MAX);
        keep(&store, "a", "1", None);
        keep(&store, "a", "2", None);
        assert!(has(&store, "a", "1"));
        keep(&store, "a", "3", None);
        assert!(has(&store, "a", "1") && !has(&store, "a", "2") && has(&store, "a", "3"));
    }

    #[test]
    fn a_key_sees_its_own_only() {
        let store = ResponseStore::new(9, usize::MAX);
        keep(&store, "a", "1", None);
        assert!(has(&store, "a", "1") && !has(&store, "b", "1"));
        assert!(store.get(&None, "1").is_none());
        assert!(store.remove(&owner("b"), "1").is_none());
        let ids = HashSet::from(["in_1".to_owned(), "in_2".to_owned()]);
        assert_eq!(store.items(&owner("a"), ALL, &ids).len(), 1);
        assert!(store.items(&owner("b"), ALL, &ids).is_empty());
        assert!(store.items(&owner("a"), [1; 16], &ids).is_empty());
    }

    #[test]
    fn bytes_are_bounded_with_their_histories() {
        let store = ResponseStore::new(1000, 20_000);
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
        let store = ResponseStore::new(9, usize::MAX);
        keep(&store, "a", "1", None);
        assert!(store.remove(&owner("a"), "1").is_some());
        let turn = Arc::new(StoredTurn::new(None, ALL, Vec::new(), Vec::new(), &store.held));
        let ended = StoredResponse::new("{}".into(), turn, false, None, &store.held);
        store.put(&owner("a"), "1", ended, false);
        assert!(!has(&store, "a", "1"));
    }

    fn texts(items: Vec<Arc<Item>>) -> String {
        items.iter().map(|item| item.id()).collect()
    }

    #[test]
    fn long_chains_are_counted_in_order_and_let_go_without_recursion() {
        let held = HeldBytes::default();
        let mut last: Option<Arc<StoredTurn>> = None;
        for _ in 0..100_000 {
            last = Some(Arc::new(StoredTurn::new(
                last,
                ALL,
                vec![item("q", "q")],
                vec![item("a", "a")],
                &held,
            )));
        }
        assert!(held.bytes() > 20_000_000);
        drop(last);
        assert_eq!(held.bytes(), 0);
    }

    #[test]
    fn a_parent_is_shared_and_outlives_its_own_holder() {
        let held = HeldBytes::default();
        let turn = |parent: &Arc<StoredTurn>, question, answer| {
            StoredTurn::new(
                Some(Arc::clone(parent)),
                ALL,
                vec![item(question, "x")],
                vec![item(answer, "x")],
                &held,
            )
        };
        let root =
            Arc::new(StoredTurn::new(None, ALL, vec![item("1", "x")], vec![item("2", "x")], &held));
        let alone = held.bytes();
        let (one, other) = (turn(&root, "3", "4"), turn(&root, "5", "6"));
        drop(root);
        assert_eq!((texts(one.items()), texts(other.asked())), ("1234".into(), "125".into()));
        assert_eq!(held.bytes(), 3 * alone);
        drop(one);
        assert_eq!(held.bytes(), 2 * alone);
    }
}
