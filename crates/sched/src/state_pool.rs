//! State slots: free, live, or kept as snapshots until they are evicted.
//!
//! A state is that of a run of tokens and cannot be cut or taken back. A running sequence has a
//! live slot, which every step changes. A snapshot is known by what the tokens before it are known
//! by: the name of the last full block and the tokens since, so that it may lie in the middle of a
//! block. Snapshots are evicted by the value of a block of their age and depth, live slots never.
//!
//! Invariant: every slot is free, a snapshot, or taken; no two snapshots are of the same tokens.

use crate::chain::Chain;
use crate::pool::value;
use base::Name;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Number of state slots by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts {
    /// States of running sequences, and snapshots that a step is taking.
    pub live: usize,
    /// Snapshots.
    pub kept: usize,
    /// Empty.
    pub free: usize,
    /// Snapshots evicted since the start.
    pub evictions: u64,
}

/// A state slot whose content is copied into another before a step is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateCopy {
    /// The slot that is read.
    pub from: u32,
    /// The slot that is written.
    pub to: u32,
}

/// The name of the last full block, and the tokens since.
type SnapshotKey = (Name, Arc<[u32]>);

#[derive(Clone, Debug)]
struct Snapshot {
    key: SnapshotKey,
    position: usize,
    /// When it was last used, and among all snapshots.
    used: u64,
    order: u64,
    /// Blocks before it, or what it is worth in them.
    depth: u64,
}

impl Snapshot {
    /// The lowest is evicted first.
    fn rank(&self) -> (u64, u64) {
        (value(self.used, self.depth), self.order)
    }
}

/// All state slots of a cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatePool {
    slots: Vec<Option<Snapshot>>,
    /// Empty slots; the last is taken first.
    free: Vec<u32>,
    keys: HashMap<SnapshotKey, u32>,
    /// Snapshots by position.
    positions: BTreeSet<(usize, u32)>,
    /// Snapshots by value, and of equal ones by last use.
    evictable: BTreeSet<((u64, u64), u32)>,
    /// Number of times that a snapshot was taken or used.
    uses: u64,
    evictions: u64,
}

impl StatePool {
    /// A pool of `total` empty slots, numbered from 0.
    pub fn new(total: usize) -> Self {
        let total = u32::try_from(total).expect("numbers of state slots are 32 bits");
        let slots = (0..total).map(|_| None).collect();
        Self { slots, free: (0..total).rev().collect(), ..Self::default() }
    }

    /// Number of slots.
    pub fn total(&self) -> usize {
        self.slots.len()
    }

    /// Whether sequences have no states.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Number of slots by use.
    pub fn count(&self) -> StateCounts {
        let (kept, free) = (self.positions.len(), self.free.len());
        let live = self.slots.len() - kept - free;
        StateCounts { live, kept, free, evictions: self.evictions }
    }

    /// The last snapshot of the chain at a position up to `most`, and its position.
    pub fn nearest(&self, chain: &Chain, most: usize) -> Option<(u32, usize)> {
        let mut snapshots = self.positions.range(..=(most, u32::MAX)).rev();
        let is_of = |position, slot: u32| {
            let (name, tokens) = chain.before(position);
            let snapshot = self.slots[slot as usize].as_ref();
            snapshot.is_some_and(|known| known.key.0 == name && *known.key.1 == *tokens)
        };
        let found = snapshots.find(|(position, slot)| is_of(*position, *slot));
        found.map(|&(position, slot)| (slot, position))
    }

    /// The snapshot after `tokens` that follow the block of this name.
    pub fn find(&self, parent: Name, tokens: &[u32]) -> Option<u32> {
        self.keys.get(&(parent, tokens.into())).copied()
    }

    /// Positions of the chain's snapshots up to `most`, at most its length, ascending.
    pub fn of_chain(&self, chain: &Chain, most: usize) -> Vec<usize> {
        let positions = self.positions.range(..=(most, u32::MAX)).copied();
        let is_of = |&(position, slot): &(usize, u32)| {
            let (name, tokens) = chain.before(position);
            self.find(name, tokens) == Some(slot)
        };
        positions.filter(is_of).map(|(position, _)| position).collect()
    }

    /// Whether a slot can be taken.
    pub fn has_room(&self) -> bool {
        !(self.free.is_empty() && self.evictable.is_empty())
    }

    /// Takes an empty slot, else that of the least valuable snapshot.
    pub fn take(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let (_, slot) = self.evictable.first().copied()?;
            self.forget(slot);
            self.evictions += 1;
            Some(slot)
        })
    }

    /// Takes the slot of a sequence that continues from a snapshot, which is used at the time
    /// `now`, and returns the copy that is to be made. The snapshot's own slot is taken if there is
    /// no other.
    pub fn resume(&mut self, snapshot: Option<u32>, now: u64) -> (u32, Option<StateCopy>) {
        const RUNNING: &str = "there are as many slots as sequences that run";
        let Some(from) = snapshot else { return (self.take().expect(RUNNING), None) };
        let known = self.forget(from);
        match self.take() {
            Some(to) => {
                self.enter(from, Snapshot { used: now, ..known });
                (to, Some(StateCopy { from, to }))
            }
            None => (from, None),
        }
    }

    /// Makes a taken slot, the state after `position` tokens of the chain, a snapshot that was used
    /// at the time `now` and has the value of `depth` blocks. Frees it if there is such a snapshot.
    pub fn keep(&mut self, slot: u32, chain: &Chain, position: usize, depth: usize, now: u64) {
        if self.touch(chain, position, now) {
            return self.release(slot);
        }
        let (name, tokens) = chain.before(position);
        let key = (name, tokens.into());
        let depth = depth as u64;
        self.enter(slot, Snapshot { key, position, used: now, order: 0, depth });
    }

    /// Marks the snapshot after `position` tokens as used at the time `now`, if there is one.
    pub fn touch(&mut self, chain: &Chain, position: usize, now: u64) -> bool {
        let (name, tokens) = chain.before(position);
        let Some(&slot) = self.keys.get(&(name, tokens.into())) else { return false };
        let known = self.forget(slot);
        self.enter(slot, Snapshot { used: now, ..known });
        true
    }

    /// Empties a taken slot.
    pub fn release(&mut self, slot: u32) {
        debug_assert!(self.slots[slot as usize].is_none(), "it is taken");
        self.free.push(slot);
    }

    fn enter(&mut self, slot: u32, mut snapshot: Snapshot) {
        self.uses += 1;
        snapshot.order = self.uses;
        self.keys.insert(snapshot.key.clone(), slot);
        self.positions.insert((snapshot.position, slot));
        self.evictable.insert((snapshot.rank(), slot));
        self.slots[slot as usize] = Some(snapshot);
    }

    /// Makes a snapshot a taken slot.
    fn forget(&mut self, slot: u32) -> Snapshot {
        let snapshot = self.slots[slot as usize].take().expect("it is a snapshot");
        self.keys.remove(&snapshot.key);
        self.positions.remove(&(snapshot.position, slot));
        self.evictable.remove(&(snapshot.rank(), slot));
        snapshot
    }
}

#[cfg(test)]
impl StatePool {
    /// Panics unless every slot is free, a snapshot, or once in `taken`.
    pub fn check(&self, taken: impl Iterator<Item = u32>) {
        let kept = (0..).zip(&self.slots).filter(|(_, slot)| slot.is_some()).map(|(slot, _)| slot);
        let mut all: Vec<u32> = taken.chain(self.free.iter().copied()).chain(kept).collect();
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..self.slots.len() as u32), "{all:?}");
        let kept = self.slots.iter().flatten().count();
        assert_eq!([self.keys.len(), self.positions.len(), self.evictable.len()], [kept; 3]);
    }
}

#[cfg(test)]
mod tests;
