//! What the cache holds of a sequence: blocks of each group, and snapshots of states.

use crate::chain::Chain;
use crate::group::{Group, GroupCache, GroupMatch};
use crate::pool::BlockPool;
use crate::state_pool::StatePool;

/// The blocks of all groups, and the states.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// Positions of a block.
    pub block: usize,
    /// The first is the trunk, whose blocks decide how far a chain is known.
    pub groups: Vec<GroupCache>,
    pub states: StatePool,
}

/// The part of a sequence that the cache holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Match {
    /// Tokens that need not be computed.
    pub tokens: usize,
    /// What the groups hold of them.
    pub groups: Vec<GroupMatch>,
    /// The snapshot after them.
    pub state: Option<u32>,
    pub unreached: Unreached,
}

/// Tokens that the first group holds, but that a sequence computes again, by what was missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unreached {
    /// Tokens before which rows with a window are not there any more.
    pub rows: usize,
    /// Tokens before which there is no snapshot of the state.
    pub state: usize,
}

impl Unreached {
    /// All tokens.
    pub fn total(self) -> usize {
        self.rows + self.state
    }
}

impl Cache {
    pub fn new(block: usize, groups: &[Group], states: usize) -> Self {
        let groups = groups.iter().map(|&group| GroupCache::new(group, block)).collect();
        Self { block, groups, states: StatePool::new(states) }
    }

    /// The blocks of the first group.
    pub fn trunk(&self) -> &BlockPool {
        &self.groups[0].pool
    }

    /// Whether rows are looked at for ever, and there are no states.
    pub fn is_plain(&self) -> bool {
        self.states.is_empty() && self.groups.iter().all(|group| group.window.is_none())
    }

    /// Finds the longest prefix of a chain for which each group holds all that the next row looks
    /// at and, with states, there is a snapshot: at most `most` tokens.
    pub fn find(&self, chain: &Chain, most: usize) -> Match {
        let trunk = self.chain_of_trunk(chain, most);
        let known = match &trunk {
            Some(found) => {
                let shared = found.partial.map_or(0, |partial| partial.shared);
                (found.end() * self.block + shared).min(most)
            }
            None => self.groups[0].reach(chain, most, &mut { usize::MAX }),
        };
        let (tokens, state, unreached) = self.resumable(chain, known);
        let mut groups = Vec::with_capacity(self.groups.len());
        if let Some(mut trunk) = trunk {
            if tokens < known {
                trunk.beyond = trunk.blocks.split_off((tokens / self.block).min(trunk.end()));
                trunk.partial = self.groups[0].nearest(chain, trunk.end(), tokens);
            }
            groups.push(trunk);
        }
        let others = &self.groups[groups.len()..];
        groups.extend(others.iter().map(|group| group.seen(chain, tokens)));
        Match { tokens, groups, state, unreached }
    }

    /// What the first group holds of the chain's tokens up to `most`, if it has no window.
    fn chain_of_trunk(&self, chain: &Chain, most: usize) -> Option<GroupMatch> {
        let trunk = self.groups.first().filter(|trunk| trunk.window.is_none())?;
        // Rows are computed into blocks that no other sequence holds: storing a row may clear the
        // one after it. Only the last row of a full block may write again what is there.
        let end = if most + 1 == chain.tokens.len() { most + 1 } else { most };
        let blocks = (0..end / self.block).map_while(|index| trunk.full(chain, index));
        let mut found = GroupMatch { blocks: blocks.collect(), ..GroupMatch::default() };
        found.partial = trunk.nearest(chain, found.end(), most);
        Some(found)
    }

    /// The largest position up to `known` from which a sequence can continue, the snapshot there,
    /// and what was missing at the positions after it.
    fn resumable(&self, chain: &Chain, known: usize) -> (usize, Option<u32>, Unreached) {
        let windowed = self.groups.iter().filter(|group| group.window.is_some());
        let mut windowed: Vec<_> = windowed.map(|group| (group, usize::MAX)).collect();
        let (mut position, mut rows) = (known, None);
        loop {
            let before = position;
            for (group, checked) in &mut windowed {
                position = group.reach(chain, position, checked);
            }
            if position < before {
                continue;
            }
            let reached = *rows.get_or_insert(position);
            let snapshot = self.states.nearest(chain, position);
            match snapshot {
                _ if self.states.is_empty() => {}
                Some((_, at)) if at == position => {}
                // The first row begins with an empty state.
                _ if position == 0 => {}
                _ => {
                    position = snapshot.map_or(0, |(_, at)| at);
                    continue;
                }
            }
            let unreached = Unreached { rows: known - reached, state: reached - position };
            return (position, snapshot.map(|(slot, _)| slot), unreached);
        }
    }
}
