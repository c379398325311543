//! Changes that are committed together.
//!
//! Invariant: a group has one change for each record. A record that was added and removed before it
//! was written leaves nothing, so that a group grows no larger than the records of its callers.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub(crate) table: &'static str,
    pub(crate) key: Vec<u8>,
    pub(crate) new: NewValue,
}

/// What a change makes of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewValue {
    /// The value; `None` removes the record.
    pub value: Option<Vec<u8>>,
    /// The file has no record of this key.
    pub is_new: bool,
}

impl Change {
    /// Adds a record whose key was never used.
    pub fn insert(table: &'static str, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        let new = NewValue { value: Some(value.into()), is_new: true };
        Self { table, key: key.into(), new }
    }

    /// Adds or replaces a record.
    pub fn put(table: &'static str, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        let new = NewValue { value: Some(value.into()), is_new: false };
        Self { table, key: key.into(), new }
    }

    /// Removes a record, if there is one.
    pub fn remove(table: &'static str, key: impl Into<Vec<u8>>) -> Self {
        Self { table, key: key.into(), new: NewValue { value: None, is_new: false } }
    }
}

/// The changes of one table, by key.
type Changes = BTreeMap<Vec<u8>, NewValue>;

/// Changes by table and key.
#[derive(Debug, Default)]
pub(crate) struct Group(BTreeMap<&'static str, Changes>);

impl Group {
    pub fn is_empty(&self) -> bool {
        self.0.values().all(BTreeMap::is_empty)
    }

    /// Adds a change, which takes the place of an earlier one of the same record.
    pub fn add(&mut self, change: Change) {
        let Change { table, key, new } = change;
        match self.0.entry(table).or_default().entry(key) {
            Entry::Vacant(place) => {
                place.insert(new);
            }
            Entry::Occupied(place) if new.value.is_none() && place.get().is_new => {
                place.remove();
            }
            Entry::Occupied(mut place) => place.get_mut().value = new.value,
        }
    }

    /// Puts back changes that came before those of this group and could not be written.
    pub fn put_back(&mut self, earlier: Self) {
        let later = std::mem::replace(self, earlier);
        for (table, changes) in later.0 {
            changes.into_iter().for_each(|(key, new)| self.add(Change { table, key, new }));
        }
    }

    /// The changes of each table.
    pub fn tables(&self) -> impl Iterator<Item = (&'static str, &Changes)> {
        self.0.iter().map(|(table, changes)| (*table, changes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(changes: impl IntoIterator<Item = Change>) -> Group {
        let mut group = Group::default();
        changes.into_iter().for_each(|change| group.add(change));
        group
    }

    fn check(group: &Group, expected: &[(&str, Option<&str>)]) {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let found = group.tables().flat_map(|(_, changes)| changes);
        let found = found.map(|(key, new)| (text(key), new.value.as_deref().map(text)));
        let found: Vec<_> = found.collect();
        let owned =
            |(key, value): &(&str, Option<&str>)| ((*key).to_owned(), value.map(ToOwned::to_owned));
        assert_eq!(found, expected.iter().map(owned).collect::<Vec<_>>());
    }

    #[test]
    fn the_last_change_of_a_record_counts() {
        let put = |value: &str| Change::put("t", "a", value);
        check(&group([put("1"), put("2")]), &[("a", Some("2"))]);
        check(&group([put("1"), Change::remove("t", "a")]), &[("a", None)]);
        check(&group([Change::remove("t", "a"), put("1")]), &[("a", Some("1"))]);
    }

    #[test]
    fn what_was_never_written_leaves_nothing_when_it_is_removed() {
        let insert = Change::insert("t", "a", "1");
        let changes = [insert.clone(), Change::put("t", "a", "2"), Change::remove("t", "a")];
        assert!(group(changes).is_empty());
        let mut later = group([Change::remove("t", "a"), Change::insert("t", "b", "2")]);
        later.put_back(group([insert, Change::put("t", "c", "3")]));
        check(&later, &[("b", Some("2")), ("c", Some("3"))]);
    }
}
