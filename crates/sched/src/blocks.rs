//! The blocks of a sequence in one group.

use crate::chain::Chain;
use crate::group::{GroupCache, GroupMatch, NO_BLOCK};
use crate::resume::ResumePoints;
use std::mem::replace;

/// Which blocks of a table are held and registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableSpan {
    /// Index of the first entry that is not [`NO_BLOCK`].
    pub first: usize,
    /// Blocks of the table that are registered, counted from the first.
    pub registered: usize,
    /// Whether further blocks can be registered.
    pub registrable: bool,
}

impl Default for TableSpan {
    fn default() -> Self {
        Self { first: 0, registered: 0, registrable: true }
    }
}

/// The blocks of one sequence in one group, and the parts of both that decide about them.
pub(crate) struct SequenceBlocks<'a> {
    pub chain: &'a Chain,
    pub points: &'a ResumePoints,
    pub table: &'a mut Vec<u32>,
    pub span: &'a mut TableSpan,
    pub group: &'a mut GroupCache,
}

impl SequenceBlocks<'_> {
    /// Holds what was found of the rows before `position`, and takes a block for those in the
    /// middle of one. Returns the source and the target of the copy that is to be made.
    pub fn attach(self, found: &GroupMatch, position: usize) -> Option<(u32, u32)> {
        let pool = &mut self.group.pool;
        found.blocks.iter().for_each(|&block| pool.hold(block));
        found.beyond.iter().for_each(|&block| pool.touch(block));
        self.table.clear();
        self.table.resize(found.first, NO_BLOCK);
        self.table.extend_from_slice(&found.blocks);
        *self.span = TableSpan { first: found.first, registered: found.end(), registrable: true };
        if found.end() * self.chain.block >= position {
            return None;
        }
        if let Some(partial) = found.partial {
            pool.touch(partial.block);
        }
        // The pool returns the block itself if it has no other.
        let to = pool.take().expect("a sequence is admitted where its blocks fit");
        self.table.push(to);
        found.partial.map(|partial| (partial.block, to)).filter(|(from, to)| from != to)
    }

    /// Takes blocks for up to `rows` rows after the `computed` ones and returns the rows that fit.
    pub fn grow(self, computed: usize, rows: usize) -> usize {
        let needed = (computed + rows).div_ceil(self.chain.block);
        while self.table.len() < needed {
            let Some(block) = self.group.pool.take() else { break };
            self.table.push(block);
        }
        (self.table.len() * self.chain.block - computed).min(rows)
    }

    /// Registers the blocks that are full with `computed` rows, and releases blocks that no later
    /// row looks at.
    pub fn register_full(&mut self, computed: usize) {
        while self.span.registrable && self.span.registered < computed / self.chain.block {
            self.register_next();
        }
        for index in self.span.first..self.group.first_seen(computed) {
            let point = self.points.after(index * self.chain.block);
            if let Some(point) = point.filter(|&point| self.group.first_seen(point) <= index) {
                let depth = self.points.depth(point, self.chain.block);
                self.group.pool.raise(self.table[index], depth);
            }
            self.group.pool.release(replace(&mut self.table[index], NO_BLOCK));
            self.span.first = index + 1;
        }
    }

    fn register_next(&mut self) {
        let Self { chain, table, span, group, .. } = self;
        let index = span.registered;
        let name = chain.name(index).expect("computed tokens are known");
        let full = group.filled(chain, table, index, chain.full(index));
        let Some(block) = group.pool.register(table[index], name, full) else {
            span.registrable = false;
            return;
        };
        // Both hold the same bits: one is enough.
        if block != table[index] {
            group.pool.hold(block);
            group.pool.release(replace(&mut table[index], block));
        }
        span.registered += 1;
    }

    /// Returns all blocks to the pool, which keeps them as cache, the last of the `computed` rows
    /// included. With a window, blocks that the row at `next` looks at outlive others.
    pub fn release(self, computed: usize, next: usize) {
        let Self { chain, table, span, group, .. } = self;
        let index = computed / chain.block;
        let tail = chain.beginning(index, computed);
        if span.registrable && span.registered == index && !tail.is_empty() {
            let filled = group.filled(chain, table, index, tail);
            group.pool.keep(table[index], filled);
        }
        let raised = group.window.map_or(table.len(), |_| group.first_seen(next));
        for (index, &block) in table.iter().enumerate().skip(span.first) {
            if index >= raised {
                group.pool.raise(block, index);
            }
            group.pool.release(block);
        }
        table.clear();
        *span = TableSpan::default();
    }
}
