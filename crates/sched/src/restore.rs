//! What comes from outside, such as a disk, before the sequence that needs it is admitted.
//!
//! A sequence that waits for it holds what the cache has of its chain, and the blocks and the
//! state slot that are written. As soon as a full block has come, it is registered like a computed
//! one. At the end all are released, and the sequence, and others like it, find them in the cache.

use crate::cache::Cache;
use crate::chain::Chain;
use crate::group::NO_BLOCK;
use crate::restore_plan::RestorePlan;
use std::collections::VecDeque;

/// A place that is to be written with what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestorePlace {
    /// A block of a group, for the full block `index` of the chain.
    Block {
        /// The group.
        group: usize,
        /// Index in the chain.
        index: usize,
        /// The block that is to be written.
        block: u32,
    },
    /// A block of a group, for the rows since the last full block.
    Tail {
        /// The group.
        group: usize,
        /// The block that is to be written.
        block: u32,
    },
    /// A state slot.
    State {
        /// The slot that is to be written.
        slot: u32,
    },
}

/// What a waiting sequence expects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Restore {
    /// From where the sequence is to continue.
    position: usize,
    /// For each group, the blocks of the chain. Blocks before the window are [`NO_BLOCK`].
    tables: Vec<Vec<u32>>,
    /// For each group, the block of the rows since the last full one, if it is expected.
    tails: Vec<Option<u32>>,
    state: Option<u32>,
    /// What has not come yet, in order.
    expected: VecDeque<RestorePlace>,
    /// Whether a block could not be registered, so that nothing after it is of use.
    is_broken: bool,
}

impl Restore {
    /// Holds what the cache has, and takes what the plan lacks. `None`, and nothing held, if its
    /// blocks are not available in addition to `spare` ones of each group. A state slot is
    /// available.
    pub fn begin(
        cache: &mut Cache,
        chain: &Chain,
        plan: &RestorePlan,
        spare: usize,
    ) -> Option<Self> {
        let mut tables = Vec::with_capacity(cache.groups.len());
        for (number, group) in cache.groups.iter().enumerate() {
            let seen = group.first_seen(plan.position)..plan.position / cache.block;
            let mut table = vec![NO_BLOCK; seen.start];
            table.extend(seen.map(|index| group.full(chain, index).unwrap_or(NO_BLOCK)));
            let found: Vec<u32> = known(&table).collect();
            let new = plan.blocks[number].len() + usize::from(plan.tails.contains(&number));
            if new + group.pool.idle(&found) + spare > group.pool.available() {
                return None;
            }
            tables.push(table);
        }
        let tails = vec![None; tables.len()];
        let mut restore = Self { position: plan.position, tables, tails, ..Self::default() };
        restore.take(cache, plan);
        Some(restore)
    }

    /// Holds the blocks of the tables, and takes what is expected, which is available.
    fn take(&mut self, cache: &mut Cache, plan: &RestorePlan) {
        const AVAILABLE: &str = "what is expected is available";
        for (group, table) in cache.groups.iter_mut().zip(&self.tables) {
            known(table).for_each(|block| group.pool.hold(block));
        }
        for (group, indices) in plan.blocks.iter().enumerate() {
            for &index in indices {
                let block = cache.groups[group].pool.take().expect(AVAILABLE);
                self.tables[group][index] = block;
                self.expected.push_back(RestorePlace::Block { group, index, block });
            }
        }
        for &group in &plan.tails {
            let block = cache.groups[group].pool.take().expect(AVAILABLE);
            self.tails[group] = Some(block);
            self.expected.push_back(RestorePlace::Tail { group, block });
        }
        if plan.state {
            let slot = cache.states.take().expect(AVAILABLE);
            self.state = Some(slot);
            self.expected.push_back(RestorePlace::State { slot });
        }
    }

    /// What has not come yet, in the order in which it is to be written.
    pub fn expected(&self) -> impl Iterator<Item = RestorePlace> {
        self.expected.iter().copied()
    }

    /// From where the sequence is to continue.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Whether it has taken a state slot.
    pub fn has_state(&self) -> bool {
        self.state.is_some()
    }

    /// Whether full block `index` of the chain is expected in the only group.
    pub fn expects(&self, index: usize) -> bool {
        match self.expected.front() {
            Some(RestorePlace::Block { index: next, .. }) => {
                (*next..self.tables[0].len()).contains(&index)
            }
            _ => false,
        }
    }

    /// Takes the next place as written. A full block is registered under its name.
    pub fn advance(&mut self, chain: &Chain, cache: &mut Cache) {
        let next = self.expected.pop_front().filter(|_| !self.is_broken);
        let Some(RestorePlace::Block { group, index, block }) = next else { return };
        let (table, group) = (&mut self.tables[group], &mut cache.groups[group]);
        let name = chain.name(index).expect("full blocks have names");
        let full = group.filled(chain, table, index, chain.full(index));
        let Some(registered) = group.pool.register(block, name, full) else {
            // The name has other content.
            self.is_broken = true;
            return;
        };
        if registered != block {
            group.pool.hold(registered);
            group.pool.release(std::mem::replace(&mut table[index], registered));
        }
    }

    /// Releases all. The state and the rows since the last full block stay in the cache if nothing
    /// was lost.
    pub fn end(self, chain: &Chain, cache: &mut Cache) {
        let Self { position, tables, tails, state, expected, is_broken } = self;
        let (is_whole, index) = (expected.is_empty() && !is_broken, position / cache.block);
        let now = cache.trunk().clock();
        for ((group, table), tail) in cache.groups.iter_mut().zip(&tables).zip(tails) {
            if let Some(tail) = tail {
                if is_whole {
                    let tokens = chain.beginning(index, position);
                    group.pool.keep(tail, group.filled(chain, table, index, tokens));
                }
                group.pool.release(tail);
            }
            // From the end of the chain, as it is evicted.
            for (index, &block) in table.iter().enumerate().rev() {
                if block == NO_BLOCK {
                    break;
                }
                if group.window.is_some() {
                    group.pool.raise(block, index);
                }
                group.pool.release(block);
            }
        }
        match state {
            Some(slot) if is_whole => cache.states.keep(slot, chain, position, index, now),
            Some(slot) => cache.states.release(slot),
            None => {}
        }
    }
}

/// The blocks of a table.
fn known(table: &[u32]) -> impl Iterator<Item = u32> {
    table.iter().copied().filter(|block| *block != NO_BLOCK)
}

#[cfg(test)]
impl Restore {
    /// The blocks of a group that it holds.
    pub fn held(&self, group: usize) -> impl Iterator<Item = u32> {
        known(&self.tables[group]).chain(self.tails[group])
    }

    /// The state slot that it has taken.
    pub fn state(&self) -> Option<u32> {
        self.state
    }
}
