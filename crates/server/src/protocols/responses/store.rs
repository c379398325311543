//! The responses that are kept, each for the key that it was asked with.
//!
//! Invariant: finished responses are at most so many and hold at most so many bytes, histories
//! included; those used longest ago go first.

use crate::http::options::ServerOptions;
use crate::protocols::responses::history::Item;
use crate::protocols::responses::running::Running;
use crate::protocols::responses::stored_response::StoredResponse;
use crate::protocols::responses::turns::HeldBytes;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// On whose behalf a response was made.
pub(crate) type Owner = Option<Arc<str>>;

/// A response that can be asked for again.
#[derive(Clone)]
pub(crate) enum StoreEntry {
    /// It is being made in the background.
    Running(Arc<Running>),
    /// It is made.
    Kept(Arc<StoredResponse>),
}

/// All of them.
pub(crate) struct ResponseStore {
    most: usize,
    most_bytes: usize,
    held: HeldBytes,
    shelf: Mutex<StoreState>,
}

/// Owners are credentials, which no log should show.
impl fmt::Debug for ResponseStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Store").field("held", &self.held).finish_non_exhaustive()
    }
}

type StoreKey = (Owner, String);

#[derive(Default)]
struct StoreState {
    entries: HashMap<StoreKey, (u64, StoreEntry)>,
    /// Names of finished ones by the time of their last use.
    order: BTreeMap<u64, StoreKey>,
    clock: u64,
}

impl ResponseStore {
    /// Keeps what `options` allow.
    pub fn of(options: &ServerOptions) -> Self {
        Self::new(options.stored_responses, options.stored_response_bytes)
    }

    /// Keeps at most so many responses and bytes.
    pub fn new(most: usize, most_bytes: usize) -> Self {
        Self { most, most_bytes, held: HeldBytes::default(), shelf: Mutex::default() }
    }

    /// The count that everything kept is charged to.
    pub fn held(&self) -> &HeldBytes {
        &self.held
    }

    /// Keeps `entry` under `id`.
    pub fn put(&self, owner: &Owner, id: &str, entry: StoreEntry) {
        let mut shelf = self.shelf();
        shelf.put((owner.clone(), id.to_owned()), entry);
        self.trim(&mut shelf);
    }

    /// Keeps `kept` in place of the running response, unless that was removed.
    pub fn finish(&self, owner: &Owner, id: &str, kept: Arc<StoredResponse>) {
        let name = (owner.clone(), id.to_owned());
        let mut shelf = self.shelf();
        if shelf.entries.contains_key(&name) {
            shelf.put(name, StoreEntry::Kept(kept));
            self.trim(&mut shelf);
        }
    }

    /// The response `id` of `owner`.
    pub fn get(&self, owner: &Owner, id: &str) -> Option<StoreEntry> {
        let name = (owner.clone(), id.to_owned());
        let mut shelf = self.shelf();
        let (_, entry) = shelf.entries.get(&name)?;
        let entry = entry.clone();
        shelf.put(name, entry.clone());
        Some(entry)
    }

    /// As `get`, and forgets it.
    pub fn remove(&self, owner: &Owner, id: &str) -> Option<StoreEntry> {
        self.shelf().remove(&(owner.clone(), id.to_owned()))
    }

    /// Those of the items with these ids that responses of `owner` hold.
    pub fn items(&self, owner: &Owner, ids: &HashSet<String>) -> HashMap<String, Arc<Item>> {
        let mut found = HashMap::new();
        if ids.is_empty() {
            return found;
        }
        for kept in self.kept_of(owner) {
            for item in kept.turn.input.iter().chain(&kept.turn.output) {
                if ids.contains(item.id()) {
                    found.insert(item.id().to_owned(), Arc::clone(item));
                }
            }
        }
        found
    }

    fn kept_of(&self, owner: &Owner) -> Vec<Arc<StoredResponse>> {
        let shelf = self.shelf();
        let of_owner = shelf.entries.iter().filter(|((of, _), _)| of == owner);
        let kept = of_owner.filter_map(|(_, (_, entry))| match entry {
            StoreEntry::Kept(kept) => Some(Arc::clone(kept)),
            StoreEntry::Running(_) => None,
        });
        kept.collect()
    }

    /// Lets the oldest go while there is too much. What others go on from stays until they go.
    fn trim(&self, shelf: &mut StoreState) {
        while shelf.order.len() > self.most || self.held.bytes() > self.most_bytes {
            let Some((_, name)) = shelf.order.pop_first() else { return };
            shelf.entries.remove(&name);
        }
    }

    fn shelf(&self) -> MutexGuard<'_, StoreState> {
        // Each change leaves it whole.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreState {
    fn put(&mut self, name: StoreKey, entry: StoreEntry) {
        self.remove(&name);
        self.clock += 1;
        if matches!(entry, StoreEntry::Kept(_)) {
            self.order.insert(self.clock, name.clone());
        }
        self.entries.insert(name, (self.clock, entry));
    }

    fn remove(&mut self, name: &StoreKey) -> Option<StoreEntry> {
        let (used, entry) = self.entries.remove(name)?;
        self.order.remove(&used);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::responses::history::ItemRole;
    use crate::protocols::responses::turns::StoredTurn;

    fn owner(name: &str) -> Owner {
        Some(name.into())
    }

    fn item(id: &str, text: &str) -> Arc<Item> {
        let texts = vec![text.to_owned()];
        Arc::new(Item::Message { id: id.into(), role: ItemRole::User, texts })
    }

    fn keep(
        store: &ResponseStore,
        of: &str,
        id: &str,
        parent: Option<Arc<StoredTurn>>,
    ) -> Arc<StoredTurn> {
        let input = vec![item(&format!("in_{id}"), "question")];
        let turn = Arc::new(StoredTurn::new(parent, input, Vec::new(), store.held()));
        let kept = StoredResponse::new("{}".into(), Arc::clone(&turn), store.held());
        store.put(&owner(of), id, StoreEntry::Kept(Arc::new(kept)));
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
        assert_eq!(store.items(&owner("a"), &ids).len(), 1);
        assert!(store.items(&owner("b"), &ids).is_empty());
    }

    #[test]
    fn bytes_are_bounded_with_their_histories() {
        let store = ResponseStore::new(1000, 20_000);
        let mut last = None;
        for number in 0..1000 {
            last = Some(keep(&store, "a", &number.to_string(), last));
            assert!(store.held().bytes() <= 20_000 || number > 0 && store.shelf().order.is_empty());
        }
        drop(last);
        assert!(store.held().bytes() <= 20_000);
    }

    #[test]
    fn what_is_removed_is_not_put_back_by_its_end() {
        let store = ResponseStore::new(9, usize::MAX);
        let turn = keep(&store, "a", "1", None);
        assert!(store.remove(&owner("a"), "1").is_some());
        let kept = StoredResponse::new("{}".into(), turn, store.held());
        store.finish(&owner("a"), "1", Arc::new(kept));
        assert!(!has(&store, "a", "1"));
    }
}
