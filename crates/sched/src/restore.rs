//! Blocks that come from outside, such as a disk, before the sequence that needs them is admitted.
//!
//! A sequence that waits for them holds what the cache has of its chain, and the blocks that they
//! are written to. As soon as one has come, it is registered like a computed block; at the end all
//! are released, and the sequence, and others like it, find them in the cache.

use crate::cache::{Cache, Match};
use crate::sequence::Sequence;

/// Blocks that a waiting sequence expects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Restore {
    /// The blocks of the chain, from its root on.
    pub table: Vec<u32>,
    /// Blocks of the table that are registered, counted from the first.
    registered: usize,
}

impl Restore {
    /// Whether block `index` of the chain is expected.
    pub fn expects(&self, index: usize) -> bool {
        (self.registered..self.table.len()).contains(&index)
    }
}

impl Sequence {
    /// Indices of the full blocks of which the cache has none, although they need not be computed:
    /// those before the first row that needs an output. Empty for sequences that run, and in caches
    /// with windows or states.
    pub fn missing(&self, cache: &Cache) -> std::ops::Range<usize> {
        let is_plain =
            cache.states.is_empty() && matches!(&cache.groups[..], [it] if it.window.is_none());
        if !is_plain || !self.may_restore() {
            return 0..0;
        }
        let known = self.find(cache).groups[0].blocks.len();
        known..(self.first_output() / cache.block).max(known)
    }

    /// Holds what the cache has of the chain, and takes `count` blocks after it; returns these.
    /// `None`, and nothing held, if they are not available beside `spare` blocks.
    pub fn begin_restore(
        &mut self,
        cache: &mut Cache,
        count: usize,
        spare: usize,
    ) -> Option<Vec<u32>> {
        let found = self.find(cache).groups.swap_remove(0).blocks;
        let pool = &mut cache.groups[0].pool;
        let needed = count + pool.idle(&found) + spare;
        if count == 0 || needed > pool.available() {
            return None;
        }
        found.iter().for_each(|&block| pool.hold(block));
        let new: Vec<u32> = (0..count).map_while(|_| pool.take()).collect();
        debug_assert_eq!(new.len(), count, "they are available");
        let registered = found.len();
        self.restore = Some(Restore { table: [found, new.clone()].concat(), registered });
        Some(new)
    }

    /// Whether `other`, which waits, expects the block that this sequence needs after `found`.
    pub fn waits_for_restore(&self, other: &Self, found: &Match) -> bool {
        let Some(restore) = other.restore.as_ref().filter(|_| self.may_restore()) else {
            return false;
        };
        let index = found.groups[0].end();
        let name =
            self.chain.name(index).filter(|_| index * self.chain.block < self.first_output());
        name.is_some() && other.chain.name(index) == name && restore.expects(index)
    }

    /// Registers the next of the blocks that were expected, which holds the content of its name.
    pub fn restored(&mut self, cache: &mut Cache) {
        let Some(Restore { table, registered }) = &mut self.restore else { return };
        let (index, group) = (*registered, &mut cache.groups[0]);
        if index == table.len() {
            return;
        }
        let name = self.chain.name(index).expect("full blocks have names");
        let full = group.filled(&self.chain, table, index, self.chain.full(index));
        let Some(block) = group.pool.register(table[index], name, full) else {
            // The name has other content: no later block can be registered either.
            *registered = table.len();
            return;
        };
        if block != table[index] {
            group.pool.hold(block);
            group.pool.release(std::mem::replace(&mut table[index], block));
        }
        *registered += 1;
    }

    /// Expects no more blocks: those that came are in the cache.
    pub fn end_restore(&mut self, cache: &mut Cache) {
        let Some(Restore { table, .. }) = self.restore.take() else { return };
        // From the end of the chain, as it is evicted.
        table.iter().rev().for_each(|&block| cache.groups[0].pool.release(block));
    }
}
