//! Groups: rows of equal window, with blocks of their own.

use crate::chain::Chain;
use crate::pool::{BlockPool, FilledBlock};

/// Rows of equal window, over all layers of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Maximum number of positions for which a row is looked at, its own included; `None` where a
    /// row is looked at for ever. Blocks before the window are released.
    pub window: Option<usize>,
    /// Blocks of the group.
    pub blocks: usize,
}

impl Group {
    /// Whether the group, in blocks of `block` positions, holds all that a row of one sequence
    /// looks at, where the first group has `trunk` blocks and bounds a sequence.
    pub fn holds_window(&self, block: usize, trunk: usize) -> bool {
        let seen = |window: usize| trunk.min((window - 1).div_ceil(block) + 1);
        self.window.is_none_or(|window| self.blocks >= seen(window))
    }
}

/// Entry of a block table for a block before the window.
pub(crate) const NO_BLOCK: u32 = u32::MAX;

/// The blocks of a group.
#[derive(Clone, Debug)]
pub(crate) struct GroupCache {
    pub window: Option<usize>,
    pub pool: BlockPool,
    /// Positions of a block.
    block: usize,
}

/// What a group holds of the rows before a position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupMatch {
    /// Index of the first block that is looked at.
    pub first: usize,
    /// Full blocks from `first` on.
    pub blocks: Vec<u32>,
    /// A block that begins like the next one.
    pub partial: Option<PartialMatch>,
    /// Full blocks after these, whose tokens are computed again.
    pub beyond: Vec<u32>,
}

/// A block whose beginning a sequence shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartialMatch {
    pub block: u32,
    /// Positions that are equal.
    pub shared: usize,
}

impl GroupMatch {
    /// Index of the block after the full ones.
    pub fn end(&self) -> usize {
        self.first + self.blocks.len()
    }
}

impl GroupCache {
    pub fn new(Group { window, blocks }: Group, block: usize) -> Self {
        assert!(blocks > 0 && window != Some(0), "a group has blocks, and a row sees itself");
        Self { window, pool: BlockPool::new(blocks), block }
    }

    /// Index of the first block that the row at `position` looks at.
    pub fn first_seen(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window) / self.block)
    }

    /// Number of available blocks that are taken from others by a sequence of `tokens` tokens, at
    /// most at once, if a step has `rows` rows.
    pub fn needs(&self, found: &GroupMatch, tokens: usize, rows: usize) -> usize {
        let mut blocks = tokens.div_ceil(self.block);
        if let Some(window) = self.window {
            let most = (window + rows).div_ceil(self.block) + 2;
            blocks = blocks.min(most).min(self.pool.total());
        }
        let new = blocks.saturating_sub(found.blocks.len());
        // Blocks that are computed again give way to those that are known as soon as they are full.
        let again = found.beyond.len() - self.pool.idle(&found.beyond);
        let shared = again.saturating_sub(rows.div_ceil(self.block) + 1);
        new - shared + self.pool.idle(&found.blocks)
    }

    /// The full block `index` of the chain.
    pub fn full(&self, chain: &Chain, index: usize) -> Option<u32> {
        self.pool.find(chain.name(index)?, chain.parent(index), chain.full(index))
    }

    /// The block that shares most with block `index` of the chain, up to position `end`.
    pub fn nearest(&self, chain: &Chain, index: usize, end: usize) -> Option<PartialMatch> {
        let tokens = Some(chain.beginning(index, end)).filter(|tokens| !tokens.is_empty())?;
        let (block, shared) = self.pool.nearest(chain.parent(index), tokens)?;
        Some(PartialMatch { block, shared })
    }

    /// A block that holds the rows before `position` since the last full block, of which there is
    /// at least one.
    pub fn tail(&self, chain: &Chain, position: usize) -> Option<u32> {
        let (parent, tokens) = chain.before(position);
        self.pool.tail(parent, tokens)
    }

    /// Whether the row at `position` looks at other rows of its block.
    pub fn sees_own_block(&self, position: usize) -> bool {
        !position.is_multiple_of(self.block) && self.window != Some(1)
    }

    /// The largest position, at most `position`, whose row finds all rows that it looks at. Full
    /// blocks from `checked` to the one before `position` are known to be there.
    pub fn reach(&self, chain: &Chain, mut position: usize, checked: &mut usize) -> usize {
        loop {
            let (index, first) = (position / self.block, self.first_seen(position));
            *checked = (*checked).min(index);
            while *checked > first && self.full(chain, *checked - 1).is_some() {
                *checked -= 1;
            }
            if *checked > first {
                // The block before it is missing: no row after that block sees all it needs.
                position = *checked * self.block - 1;
                continue;
            }
            if !self.sees_own_block(position) {
                return position;
            }
            let shared = self.nearest(chain, index, position).map_or(0, |found| found.shared);
            if index * self.block + shared == position {
                return position;
            }
            position = index * self.block + shared;
        }
    }

    /// What the row at `position` looks at, which [`reach`](Self::reach) has found.
    pub fn seen(&self, chain: &Chain, position: usize) -> GroupMatch {
        let (first, index) = (self.first_seen(position), position / self.block);
        let blocks = (first..index).map(|index| self.full(chain, index).expect("it was found"));
        let partial = self.sees_own_block(position).then(|| self.nearest(chain, index, position));
        let (blocks, partial) = (blocks.collect(), partial.flatten());
        GroupMatch { first, blocks, partial, beyond: Vec::new() }
    }

    /// Describes block `index`, in which `tokens` are computed, after the blocks of `table`.
    pub fn filled<'a>(
        &self,
        chain: &Chain,
        table: &[u32],
        index: usize,
        tokens: &'a [u32],
    ) -> FilledBlock<'a> {
        let parent = chain.parent(index);
        // With a window, the end of a chain is useful without its root, and only where sequences
        // are likely to continue.
        let Some(before) = index.checked_sub(1).filter(|_| self.window.is_none()) else {
            return FilledBlock { parent, parent_block: None, depth: 0, tokens };
        };
        FilledBlock { parent, parent_block: Some(table[before]), depth: index, tokens }
    }
}
