//! Blocks and a state slot for a sequence that is computed without the scheduler.

use crate::load::runner::Runner;
use backend::{Batch, StateRows};

/// The part of a runner's cache that one of several sequences has to itself. In groups of rows with
/// a window, blocks are used again when their rows are out of sight.
#[derive(Clone, Debug)]
pub struct SequenceMemory {
    /// Of each group, the blocks that the sequence uses in turns.
    groups: Vec<Vec<u32>>,
    /// A block table of each group, as far as it was needed.
    tables: Vec<Vec<u32>>,
    /// Number of positions that each group sees, a step's rows aside.
    windows: Vec<Option<usize>>,
    /// Positions of a block.
    block: usize,
    state: Option<u32>,
    /// Tokens of the positions so far.
    tokens: Vec<u32>,
}

impl Runner {
    /// Divides the cache evenly among `count` sequences.
    ///
    /// # Panics
    /// If the cache has fewer state slots than that, and the model has states.
    pub fn sequences(&self, count: usize) -> Vec<SequenceMemory> {
        assert!(self.states == 0 || self.states >= count, "a state slot for each sequence");
        let memory = |index: usize| SequenceMemory {
            groups: (self.groups.iter())
                .map(|group| {
                    let blocks = group.blocks / count;
                    (index * blocks..(index + 1) * blocks).map(|block| block as u32).collect()
                })
                .collect(),
            // Reserved, so that decoding allocates nothing.
            tables: (self.groups.iter())
                .map(|_| Vec::with_capacity(self.groups[0].blocks / count))
                .collect(),
            windows: self.groups.iter().map(|group| group.window).collect(),
            block: self.block(),
            state: (self.states > 0).then_some(index as u32),
            tokens: Vec::with_capacity(self.groups[0].blocks / count * self.block()),
        };
        (0..count).map(memory).collect()
    }
}

impl SequenceMemory {
    /// Gives each block another number.
    pub fn renumber(&mut self, number: impl Fn(u32) -> u32) {
        let all = self.groups.iter_mut().chain(&mut self.tables).flatten();
        all.for_each(|block| *block = number(*block));
    }

    /// Most rows of a step: in groups with a window, the rows of a step must not take the place of
    /// the rows that they see. Nothing is replaced in a group that holds as many positions as one
    /// without a window.
    pub fn most_rows(&self) -> usize {
        let each = self.groups.iter().zip(&self.windows);
        let kept =
            each.filter(|(_, window)| window.is_none()).map(|(blocks, _)| blocks.len()).min();
        let rows = |(blocks, window): (&Vec<u32>, &Option<usize>)| {
            let window = window.filter(|_| kept.is_none_or(|kept| blocks.len() < kept));
            let seen = window.map(|window| window + self.block - 2);
            seen.map_or(usize::MAX, |seen| (blocks.len() * self.block).saturating_sub(seen))
        };
        self.groups.iter().zip(&self.windows).map(rows).min().unwrap_or(usize::MAX).max(1)
    }

    /// Adds `tokens` from `position` on to a batch; the last `logits` rows output logits.
    ///
    /// # Panics
    /// If the positions exceed the sequence's part of the cache, or tokens before `position` have
    /// not been added.
    pub fn push(&mut self, batch: &mut Batch, tokens: &[u32], position: usize, logits: usize) {
        self.push_with(batch, [tokens, &[]], position, (0, logits));
    }

    /// As [`push`](Self::push), of known tokens and guesses. Of the guesses of the step before,
    /// `right` proved right.
    ///
    /// # Panics
    /// As [`push`](Self::push).
    pub fn push_with(
        &mut self,
        batch: &mut Batch,
        [known, guesses]: [&[u32]; 2],
        position: usize,
        (right, logits): (usize, usize),
    ) {
        let needed = (position + known.len() + guesses.len()).div_ceil(self.block);
        batch.push([known, guesses], position, logits);
        // Embeddings of n-grams follow from the tokens before.
        assert!(position <= self.tokens.len(), "the tokens before a position");
        self.tokens.truncate(position);
        batch.follow(&self.tokens);
        self.tokens.extend(known.iter().chain(guesses));
        let groups = self.groups.iter().zip(&mut self.tables).zip(&self.windows);
        for ((blocks, table), window) in groups {
            assert!(needed <= blocks.len() || window.is_some(), "positions of the sequence's part");
            while table.len() < needed {
                table.push(blocks[table.len() % blocks.len()]);
            }
            batch.table(&table[..needed]);
        }
        if let Some(slot) = self.state {
            batch.state(StateRows { slot, right, guesses: guesses.len() });
        }
    }

    /// Continues with the state in another slot.
    pub fn use_state(&mut self, slot: u32) {
        self.state = self.state.map(|_| slot);
    }

    /// Whether the rows that the row at `position` sees are still there after `computed` positions.
    pub(crate) fn holds(&self, position: usize, computed: usize) -> bool {
        let mut groups = self.groups.iter().zip(&self.windows);
        groups.all(|(blocks, window)| {
            let oldest = window.map_or(0, |window| (position + 1).saturating_sub(window));
            computed.div_ceil(self.block) - oldest / self.block <= blocks.len()
        })
    }

    /// The slot of its state.
    pub(crate) fn state(&self) -> Option<u32> {
        self.state
    }
}
