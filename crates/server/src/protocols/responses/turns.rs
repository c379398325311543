//! Turns of conversations, each with the one it goes on from.
//!
//! Invariant: what turns hold is counted until the last one who can reach it lets go.

use crate::protocols::responses::history::Item;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are held, over all holders.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldBytes(Arc<AtomicUsize>);

impl HeldBytes {
    /// Bytes now.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts `bytes` for as long as the result lives.
    pub fn charge(&self, bytes: usize) -> ByteCharge {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        ByteCharge { held: self.clone(), bytes }
    }
}

/// Bytes of one holder.
#[derive(Debug)]
pub(crate) struct ByteCharge {
    held: HeldBytes,
    bytes: usize,
}

impl ByteCharge {
    /// Counts `bytes` more.
    pub fn grow(&mut self, bytes: usize) {
        self.held.0.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }
}

impl Drop for ByteCharge {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What a response was asked and answered.
#[derive(Debug)]
pub(crate) struct StoredTurn {
    parent: Option<Arc<StoredTurn>>,
    pub input: Vec<Arc<Item>>,
    pub output: Vec<Arc<Item>>,
    _charge: ByteCharge,
}

impl StoredTurn {
    /// A turn that goes on from `parent`.
    pub fn new(
        parent: Option<Arc<StoredTurn>>,
        input: Vec<Arc<Item>>,
        output: Vec<Arc<Item>>,
        held: &HeldBytes,
    ) -> Self {
        let bytes = input.iter().chain(&output).map(|item| item.size()).sum::<usize>();
        Self { parent, input, output, _charge: held.charge(bytes + size_of::<Self>()) }
    }

    /// The turns up to this one, the first of the conversation first.
    pub fn chain(&self) -> Vec<&Self> {
        let mut chain = vec![self];
        let mut parent = &self.parent;
        while let Some(turn) = parent {
            chain.push(turn);
            parent = &turn.parent;
        }
        chain.reverse();
        chain
    }

    /// All items of the conversation, answers included.
    pub fn items(&self) -> Vec<Arc<Item>> {
        let items = |turn: &&Self| [&turn.input[..], &turn.output].concat();
        self.chain().iter().flat_map(items).collect()
    }

    /// All items but this turn's answer.
    pub fn asked(&self) -> Vec<Arc<Item>> {
        let mut items = self.parent.as_ref().map(|parent| parent.items()).unwrap_or_default();
        items.extend_from_slice(&self.input);
        items
    }
}

/// Chains are long: one link is let go after the other, not each within the other.
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
    use crate::protocols::responses::history::ItemRole;

    fn item(text: &str) -> Arc<Item> {
        let texts = vec![text.to_owned()];
        Arc::new(Item::Message { id: text.into(), role: ItemRole::User, texts })
    }

    fn texts(items: Vec<Arc<Item>>) -> String {
        items.iter().map(|item| item.id()).collect()
    }

    #[test]
    fn long_chains_are_counted_in_order_and_let_go_without_recursion() {
        let held = HeldBytes::default();
        let mut last: Option<Arc<StoredTurn>> = None;
        for _ in 0..100_000 {
            last = Some(Arc::new(StoredTurn::new(last, vec![item("q")], vec![item("a")], &held)));
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
                vec![item(question)],
                vec![item(answer)],
                &held,
            )
        };
        let root = Arc::new(StoredTurn::new(None, vec![item("1")], vec![item("2")], &held));
        let alone = held.bytes();
        let (one, other) = (turn(&root, "3", "4"), turn(&root, "5", "6"));
        drop(root);
        assert_eq!((texts(one.items()), texts(other.asked())), ("1234".into(), "125".into()));
        assert_eq!(held.bytes(), 3 * alone);
        drop(one);
        assert_eq!(held.bytes(), 2 * alone);
    }
}
