//! From where a waiting sequence can continue, if what is stored outside the cache comes into it.
//!
//! A position is of use if each group has the full blocks that its row looks at, in the cache or
//! stored. With states there is a snapshot at exactly that position too, and the rows of each group
//! since the last full block.

use crate::cache::Cache;
use crate::chain::Chain;
use crate::group::GroupCache;
use base::Name;

/// What is stored outside the cache.
pub trait StoredParts {
    /// Whether the full block of this name is stored for a group.
    fn has_block(&self, group: usize, name: Name) -> bool;

    /// Whether a state is stored after the block of this name and less than a block more.
    fn has_states_after(&self, parent: Name) -> bool;

    /// Whether the state after the block `parent` and `tokens` more is stored.
    fn has_state(&self, parent: Name, tokens: &[u32]) -> bool;

    /// Whether the rows of `tokens` after the block `parent` are stored for a group.
    fn has_tail(&self, group: usize, parent: Name, tokens: &[u32]) -> bool;
}

/// What a sequence lacks to continue from a position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestorePlan {
    /// Tokens that need not be computed once all has come.
    pub position: usize,
    /// Tokens that need not be computed if nothing comes.
    pub known: usize,
    /// For each group, indices in the chain of the full blocks that are to come, ascending.
    pub blocks: Vec<Vec<usize>>,
    /// Groups whose rows since the last full block are to come.
    pub tails: Vec<usize>,
    /// Whether the state is to come.
    pub state: bool,
}

/// Looks for a position.
struct Planner<'a> {
    chain: &'a Chain,
    cache: &'a Cache,
    stored: &'a dyn StoredParts,
    /// For each group and index, the number of blocks right before it that are there.
    runs: Vec<Vec<usize>>,
    /// Positions of snapshots in the cache.
    snapshots: Vec<usize>,
}

impl RestorePlan {
    /// The plan for the largest position after `known`, the tokens of the chain that the cache
    /// has, and up to `most`.
    pub(crate) fn new(
        chain: &Chain,
        cache: &Cache,
        [known, most]: [usize; 2],
        stored: &dyn StoredParts,
    ) -> Option<Self> {
        let snapshots = cache.states.of_chain(chain, most);
        let mut planner = Planner { chain, cache, stored, runs: Vec::new(), snapshots };
        planner.count_runs(most / cache.block);
        let position = planner.position(known, most)?;
        Some(planner.lacking(position, known))
    }
}

impl Planner<'_> {
    /// Counts the blocks of each group that are there, of the first `count` of the chain.
    fn count_runs(&mut self, mut count: usize) {
        for (number, group) in self.cache.groups.iter().enumerate() {
            let mut runs = vec![0];
            for index in 0..count {
                let name = self.chain.name(index).expect("full blocks have names");
                let is_there =
                    group.full(self.chain, index).is_some() || self.stored.has_block(number, name);
                if !is_there && group.window.is_none() {
                    break;
                }
                runs.push(if is_there { runs[index] + 1 } else { 0 });
            }
            count = runs.len() - 1;
            self.runs.push(runs);
        }
    }

    /// The largest position after `known`, up to `most`, that can be reached.
    fn position(&self, known: usize, most: usize) -> Option<usize> {
        let (block, last) = (self.cache.block, self.runs.last()?.len() - 1);
        let indices = (known / block..=last).rev();
        if self.cache.states.is_empty() {
            let positions = indices.map(|index| index * block);
            return positions.into_iter().find(|&at| at > known && self.has_rows(at));
        }
        let positions = indices.flat_map(|index| {
            let (start, end) = (index * block, ((index + 1) * block).min(most + 1));
            let is_stored = self.stored.has_states_after(self.chain.parent(index));
            let is_kept = self.snapshots.iter().any(|at| (start..end).contains(at));
            (start..if is_stored || is_kept { end } else { start }).rev()
        });
        positions.into_iter().find(|&at| at > known && self.has_state(at) && self.has_rows(at))
    }

    /// Whether each group has the full blocks that the row at a position looks at.
    fn has_rows(&self, position: usize) -> bool {
        let index = position / self.cache.block;
        let mut groups = self.cache.groups.iter().zip(&self.runs);
        groups.all(|(group, runs)| index <= group.first_seen(position) + runs[index])
    }

    /// Whether there is a state at a position, and the rows of its block up to it.
    fn has_state(&self, position: usize) -> bool {
        let (parent, tokens) = self.chain.before(position);
        let is_there = self.snapshots.contains(&position) || self.stored.has_state(parent, tokens);
        let mut groups = (0..).zip(&self.cache.groups);
        is_there
            && groups.all(|(number, group)| {
                !self.lacks_tail(group, position) || self.stored.has_tail(number, parent, tokens)
            })
    }

    /// Whether the row at a position looks at rows of its block that the cache does not have.
    fn lacks_tail(&self, group: &GroupCache, position: usize) -> bool {
        group.sees_own_block(position) && group.tail(self.chain, position).is_none()
    }

    /// What the cache lacks at a position.
    fn lacking(&self, position: usize, known: usize) -> RestorePlan {
        let (groups, index) = (&self.cache.groups, position / self.cache.block);
        let blocks = groups.iter().map(|group| {
            let seen = group.first_seen(position)..index;
            seen.filter(|&index| group.full(self.chain, index).is_none()).collect()
        });
        let has_states = !self.cache.states.is_empty();
        let lacks_tail = |number: &usize| has_states && self.lacks_tail(&groups[*number], position);
        RestorePlan {
            position,
            known,
            blocks: blocks.collect(),
            tails: (0..groups.len()).filter(lacks_tail).collect(),
            state: has_states && !self.snapshots.contains(&position),
        }
    }
}
