//! The turns that stored conversations consist of: input and output, each with the turn before.
//!
//! Invariant: the bytes of a turn are counted, and its record stays in the file, until the last
//! response, conversation or request that can reach it is gone.

use crate::protocols::responses::held_bytes::{ByteCharge, HeldBytes};
use crate::protocols::responses::history::Item;
use state::{Change, StateDir};
use std::iter::successors;
use std::sync::{Arc, OnceLock, Weak};

/// The table of turns.
pub(crate) const TURNS: &str = "turns";

/// The input and the output of a response.
#[derive(Debug)]
pub(crate) struct StoredTurn {
    pub parent: Option<Arc<StoredTurn>>,
    /// The part of its key's responses: its users and salts have parts of their own.
    pub space: [u8; 16],
    pub input: Vec<Arc<Item>>,
    pub output: Vec<Arc<Item>>,
    /// The turn in the file, once it was written.
    pub record: OnceLock<TurnRecord>,
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
        let _charge = held.charge(bytes + size_of::<Self>());
        Self { parent, space, input, output, record: OnceLock::new(), _charge }
    }

    /// This turn and those before it, the last one first.
    pub fn chain(&self) -> impl Iterator<Item = &Self> {
        successors(Some(self), |turn| turn.parent.as_deref())
    }

    /// All items of the conversation, answers included.
    pub fn items(&self) -> Vec<Arc<Item>> {
        let mut turns: Vec<_> = self.chain().collect();
        turns.reverse();
        turns.iter().flat_map(|turn| [&turn.input[..], &turn.output].concat()).collect()
    }

    /// All items but this turn's answer.
    pub fn asked(&self) -> Vec<Arc<Item>> {
        conversation(self.parent.as_deref(), &self.input)
    }
}

/// The file that turns are in.
#[derive(Debug)]
pub(crate) struct TurnTable(pub StateDir);

/// The record of a turn. It is removed when this is dropped, unless the table was dropped before.
#[derive(Debug)]
pub(crate) struct TurnRecord {
    pub number: u64,
    table: Weak<TurnTable>,
}

impl TurnRecord {
    /// The record `number` of `table`.
    pub fn new(number: u64, table: &Arc<TurnTable>) -> Self {
        Self { number, table: Arc::downgrade(table) }
    }
}

impl Drop for TurnRecord {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            table.0.write([Change::remove(TURNS, self.number.to_be_bytes())]);
        }
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

    fn item(id: &str) -> Arc<Item> {
        Arc::new(Item::Message { id: id.into(), role: Role::User, texts: vec!["x".into()] })
    }

    fn texts(items: Vec<Arc<Item>>) -> String {
        items.iter().map(|item| item.id()).collect()
    }

    #[test]
    fn long_chains_are_counted_in_order_and_let_go_without_recursion() {
        let held = HeldBytes::default();
        let mut last: Option<Arc<StoredTurn>> = None;
        for _ in 0..100_000 {
            let turn = StoredTurn::new(last, ALL, vec![item("q")], vec![item("a")], &held);
            last = Some(Arc::new(turn));
        }
        assert!(held.bytes() > 20_000_000);
        drop(last);
        assert_eq!(held.bytes(), 0);
    }

    #[test]
    fn a_parent_is_shared_and_outlives_its_own_holder() {
        let held = HeldBytes::default();
        let turn = |parent: Option<&Arc<StoredTurn>>, question, answer| {
            let (input, output) = (vec![item(question)], vec![item(answer)]);
            StoredTurn::new(parent.cloned(), ALL, input, output, &held)
        };
        let root = Arc::new(turn(None, "1", "2"));
        let alone = held.bytes();
        let (one, other) = (turn(Some(&root), "3", "4"), turn(Some(&root), "5", "6"));
        drop(root);
        assert_eq!((texts(one.items()), texts(other.asked())), ("1234".into(), "125".into()));
        assert_eq!(held.bytes(), 3 * alone);
        drop(one);
        assert_eq!(held.bytes(), 2 * alone);
    }
}
