//! The parts of a cache that are stored, each a kind of the store's blocks: full blocks of each
//! group of rows; and in models with states the states, and with each the rows of each group since
//! the last full block.

use crate::ranks::disk_message::BlockKind;
use base::Name;
use sched::StoredParts;
use store::{Keyspace, Kind};

/// What a stored block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CachePart {
    /// The rows of a full block, of a group.
    Block(usize),
    /// A state.
    State,
    /// The rows between the last full block and a state, of a group.
    Tail(usize),
}

/// Which parts a model has.
#[derive(Clone, Debug)]
pub(crate) struct CacheParts {
    /// Whether each group has a window.
    pub windows: Vec<bool>,
    /// Whether there are states.
    pub states: bool,
}

impl CacheParts {
    /// The groups with a window, or the others.
    pub fn groups(&self, windowed: bool) -> Vec<usize> {
        (0..self.windows.len()).filter(|&group| self.windows[group] == windowed).collect()
    }

    /// Number of a part in the layout.
    pub(super) fn kind(&self, part: CachePart) -> usize {
        match part {
            CachePart::Block(group) => group,
            CachePart::State => self.windows.len(),
            CachePart::Tail(group) => self.windows.len() + 1 + group,
        }
    }

    /// The group of the rows of a kind; `None` for states.
    pub fn group(&self, kind: usize) -> Option<usize> {
        match kind.checked_sub(self.windows.len()) {
            None => Some(kind),
            Some(0) => None,
            Some(of_tail) => Some(of_tail - 1),
        }
    }

    /// The kinds, in a cache whose groups have so many blocks and which has so many states.
    pub fn block_kinds(&self, groups: &[usize], states: usize) -> Vec<BlockKind> {
        let count = if self.states { 2 * self.windows.len() + 1 } else { self.windows.len() };
        let kind = |kind| BlockKind {
            places: self.group(kind).map_or(states, |group| groups[group]),
            is_of_state: kind >= self.windows.len(),
        };
        (0..count).map(kind).collect()
    }

    /// The kinds of the layout. `groups` has for each group the bytes of a block in each layer,
    /// `states` the bytes of a state in each layer.
    pub fn kinds(&self, groups: &[Vec<u64>], states: &[u64]) -> Vec<Kind> {
        let blocks = |is_state| {
            let groups = groups.iter();
            groups.map(move |bytes| Kind { layer_bytes: bytes.clone(), is_state })
        };
        let mut kinds: Vec<Kind> = blocks(false).collect();
        if self.states {
            kinds.push(Kind { layer_bytes: states.to_vec(), is_state: true });
            kinds.extend(blocks(true));
        }
        kinds
    }
}

/// What a store has of a model.
pub(super) struct StoredHere<'a> {
    pub keys: &'a Keyspace,
    pub parts: &'a CacheParts,
}

impl StoredHere<'_> {
    fn has(&self, part: CachePart, name: Name) -> bool {
        self.keys.has(self.parts.kind(part), name)
    }
}

impl StoredParts for StoredHere<'_> {
    fn has_block(&self, group: usize, name: Name) -> bool {
        self.has(CachePart::Block(group), name)
    }

    fn has_states_after(&self, parent: Name) -> bool {
        self.keys.is_followed(self.parts.kind(CachePart::State), parent)
    }

    fn has_state(&self, parent: Name, tokens: &[u32]) -> bool {
        self.has(CachePart::State, parent.state(tokens))
    }

    fn has_tail(&self, group: usize, parent: Name, tokens: &[u32]) -> bool {
        self.has(CachePart::Tail(group), parent.state(tokens))
    }
}
