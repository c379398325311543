//! The responses that are kept, each for the key that it was asked with.
//!
//! Invariant: finished responses are at most so many and hold at most so many bytes, histories
//! included; those used longest ago go first.

use crate::responses::background::Running;
use crate::responses::history::Item;
use crate::responses::kept::Kept;
use crate::responses::turns::Held;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// On whose behalf a response was made.
pub(crate) type Owner = Option<Arc<str>>;

/// A response that can be asked for again.
#[derive(Clone)]
pub(crate) enum Entry {
    /// It is being made in the background.
    Running(Arc<Running>),
    /// It is made.
    Kept(Arc<Kept>),
}

/// All of them.
pub(crate) struct Store {
    most: usize,
    most_bytes: usize,
    held: Held,
    shelf: Mutex<Shelf>,
}

/// Owners are credentials, which no log should show.
impl fmt::Debug for Store {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Store").field("held", &self.held).finish_non_exhaustive()
    }
}

type Name = (Owner, String);

#[derive(Default)]
struct Shelf {
    entries: HashMap<Name, (u64, Entry)>,
    /// Names of finished ones by the time of their last use.
    order: BTreeMap<u64, Name>,
    clock: u64,
}

impl Store {
    /// Keeps at most so many responses and bytes.
    pub fn new(most: usize, most_bytes: usize) -> Self {
        Self { most, most_bytes, held: Held::default(), shelf: Mutex::default() }
    }

    /// The count that everything kept is charged to.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Keeps `entry` under `id`.
    pub fn put(&self, owner: &Owner, id: &str, entry: Entry) {
        let mut shelf = self.shelf();
        shelf.put((owner.clone(), id.to_owned()), entry);
        self.trim(&mut shelf);
    }

    /// Keeps `kept` in place of the running response, unless that was removed.
    pub fn finish(&self, owner: &Owner, id: &str, kept: Arc<Kept>) {
        let name = (owner.clone(), id.to_owned());
        let mut shelf = self.shelf();
        if shelf.entries.contains_key(&name) {
            shelf.put(name, Entry::Kept(kept));
            self.trim(&mut shelf);
        }
    }

    /// The response `id` of `owner`.
    pub fn get(&self, owner: &Owner, id: &str) -> Option<Entry> {
        let name = (owner.clone(), id.to_owned());
        let mut shelf = self.shelf();
        let (_, entry) = shelf.entries.get(&name)?;
        let entry = entry.clone();
        shelf.put(name, entry.clone());
        Some(entry)
    }

    /// As `get`, and forgets it.
    pub fn remove(&self, owner: &Owner, id: &str) -> Option<Entry> {
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

    fn kept_of(&self, owner: &Owner) -> Vec<Arc<Kept>> {
        let shelf = self.shelf();
        let of_owner = shelf.entries.iter().filter(|((of, _), _)| of == owner);
        let kept = of_owner.filter_map(|(_, (_, entry))| match entry {
            Entry::Kept(kept) => Some(Arc::clone(kept)),
            Entry::Running(_) => None,
        });
        kept.collect()
    }

    /// Lets the oldest go while there is too much. What others go on from stays until they go.
    fn trim(&self, shelf: &mut Shelf) {
        while shelf.order.len() > self.most || self.held.bytes() > self.most_bytes {
            let Some((_, name)) = shelf.order.pop_first() else { return };
            shelf.entries.remove(&name);
        }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // Each change leaves it whole.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn put(&mut self, name: Name, entry: Entry) {
        self.remove(&name);
        self.clock += 1;
        if matches!(entry, Entry::Kept(_)) {
            self.order.insert(self.clock, name.clone());
        }
        self.entries.insert(name, (self.clock, entry));
    }

    fn remove(&mut self, name: &Name) -> Option<Entry> {
        let (used, entry) = self.entries.remove(name)?;
        self.order.remove(&used);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::responses::history::Role;
    use crate::responses::turns::Turn;

    fn owner(name: &str) -> Owner {
        Some(name.into())
    }

    fn item(id: &str, text: &str) -> Arc<Item> {
        let texts = vec![text.to_owned()];
        Arc::new(Item::Message { id: id.into(), role: Role::User, texts })
    }

    fn keep(store: &Store, of: &str, id: &str, parent: Option<Arc<Turn>>) -> Arc<Turn> {
        let input = vec![item(&format!("in_{id}"), "question")];
        let turn = Arc::new(Turn::new(parent, input, Vec::new(), store.held()));
        let kept = Kept::new("{}".into(), Arc::clone(&turn), store.held());
        store.put(&owner(of), id, Entry::Kept(Arc::new(kept)));
        turn
    }

    fn has(store: &Store, of: &str, id: &str) -> bool {
        store.get(&owner(of), id).is_some()
    }

    #[test]
    fn the_one_used_longest_ago_goes_first() {
        let store = Store::new(2, usize::MAX);
        keep(&store, "a", "1", None);
        keep(&store, "a", "2", None);
        assert!(has(&store, "a", "1"));
        keep(&store, "a", "3", None);
        assert!(has(&store, "a", "1") && !has(&store, "a", "2") && has(&store, "a", "3"));
    }

    #[test]
    fn a_key_sees_its_own_only() {
        let store = Store::new(9, usize::MAX);
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
        let store = Store::new(1000, 20_000);
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
        let store = Store::new(9, usize::MAX);
        let turn = keep(&store, "a", "1", None);
        assert!(store.remove(&owner("a"), "1").is_some());
        let kept = Kept::new("{}".into(), turn, store.held());
        store.finish(&owner("a"), "1", Arc::new(kept));
        assert!(!has(&store, "a", "1"));
    }
}
