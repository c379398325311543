//! Blocks that come from outside, such as a disk, before the sequence that needs them is admitted.
//!
//! A sequence that waits for them holds what the cache has of its chain, and the blocks that they
//! are written to. As soon as one has come, it is registered like a computed block; at the end all
//! are released, and the sequence, and others like it, find them in the cache.

use crate::chain::Chain;
use crate::group::GroupCache;

/// Blocks that a waiting sequence expects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Restore {
    /// The blocks of the chain, from its root on.
    pub table: Vec<u32>,
    /// Blocks of the table that are registered, counted from the first.
    registered: usize,
}

impl Restore {
    /// Holds the blocks that were `found` of a chain, and takes `count` blocks after them. `None`,
    /// and nothing held, if they are not available beside `spare` blocks.
    pub fn begin(
        group: &mut GroupCache,
        found: Vec<u32>,
        count: usize,
        spare: usize,
    ) -> Option<Self> {
        let pool = &mut group.pool;
        if count == 0 || count + pool.idle(&found) + spare > pool.available() {
            return None;
        }
        found.iter().for_each(|&block| pool.hold(block));
        let (registered, mut table) = (found.len(), found);
        table.extend((0..count).map_while(|_| pool.take()));
        debug_assert_eq!(table.len(), registered + count, "they are available");
        Some(Self { table, registered })
    }

    /// The blocks that are to be written.
    pub fn expected(&self) -> &[u32] {
        &self.table[self.registered..]
    }

    /// Whether block `index` of the chain is expected.
    pub fn expects(&self, index: usize) -> bool {
        (self.registered..self.table.len()).contains(&index)
    }

    /// Registers the next of the expected blocks, which holds the content of its name.
    pub fn advance(&mut self, chain: &Chain, group: &mut GroupCache) {
        let Self { table, registered } = self;
        let index = *registered;
        if index == table.len() {
            return;
        }
        let name = chain.name(index).expect("full blocks have names");
        let full = group.filled(chain, table, index, chain.full(index));
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

    /// Releases all blocks, from the end of the chain, as it is evicted.
    pub fn end(self, group: &mut GroupCache) {
        self.table.iter().rev().for_each(|&block| group.pool.release(block));
    }
}
