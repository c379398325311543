//! What attention reads: queries with the positions that they attend to, and keys and values.

use crate::kv::{KvLayout, SPAN};
use std::ops::Range;

/// Keys and values of one layer.
#[derive(Clone, Copy, Debug)]
pub struct KvRef<'a> {
    /// Sizes.
    pub layout: KvLayout,
    /// `[heads][head bytes]` of each block, `stride` bytes from block to block.
    pub data: &'a [u8],
    /// Bytes from one block to the next.
    pub stride: usize,
}

/// The positions that a query attends to: its own, those before and, in encoders, those after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Most positions up to its own, above 0; `usize::MAX` for all.
    pub positions: usize,
    /// Whether windows follow each other, each as long as this, so that a query attends to those
    /// of the window that it is in (Llama 4).
    pub is_chunk: bool,
    /// Most later positions, as far as the sequence has them: 0 in causal attention.
    pub ahead: usize,
    /// The first position that has a row; those before attend to themselves alone.
    pub first: usize,
}

impl Window {
    /// All positions up to its own.
    pub const ALL: Self = Self { positions: usize::MAX, is_chunk: false, ahead: 0, first: 0 };

    /// The first position that a query at `position` attends to.
    pub fn first_seen(self, position: usize) -> usize {
        let seen = match self.is_chunk {
            true => position - position % self.positions,
            false => (position + 1).saturating_sub(self.positions),
        };
        seen.max(self.first.min(position))
    }

    /// One more than the last position that a query at `position` of a sequence of `end` positions
    /// attends to.
    pub fn seen_end(self, position: usize, end: usize) -> usize {
        (position + 1).saturating_add(self.ahead).min(end)
    }
}

/// Attention of consecutive positions of one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// Rotated queries `[rows, heads * dim]`.
    pub q: &'a [f32],
    /// Rows.
    pub rows: usize,
    /// Query heads; a multiple of the KV heads, consecutive heads sharing one KV head.
    pub heads: usize,
    /// Position of the first row.
    pub position: usize,
    /// The sequence's blocks, in order of positions. Blocks before the window of the first row are
    /// not read.
    pub blocks: &'a [u32],
    /// Factor of the scores, usually `1 / sqrt(dim)`.
    pub scale: f32,
    /// The positions that each query attends to.
    pub window: Window,
    /// Positions of the sequence, those of all its rows included.
    pub end: usize,
    /// Whether BF16 keys and values may be multiplied as BF16 where the CPU can.
    pub narrow: bool,
    /// For each head, the score of a position without a value, which takes a share of the weights
    /// (attention sinks, Xiao et al., 2023); or empty.
    pub sinks: &'a [f32],
}

impl Query<'_> {
    /// Heads that share a KV head.
    pub(super) fn group(&self, kv: KvRef<'_>) -> usize {
        self.heads / kv.layout.heads
    }

    /// The first position that any row attends to.
    pub(super) fn oldest(&self) -> usize {
        self.window.first_seen(self.position)
    }

    /// One more than the last position that the row at `position` attends to.
    pub(super) fn seen_end(&self, position: usize) -> usize {
        self.window.seen_end(position, self.end)
    }

    /// The spans that any row attends to.
    pub fn spans(&self) -> Range<usize> {
        let last = self.seen_end(self.position + self.rows - 1) - 1;
        self.oldest() / SPAN..last / SPAN + 1
    }

    pub(super) fn check(&self, kv: KvRef<'_>) {
        let KvLayout { heads, dim, block, .. } = kv.layout;
        kv.layout.check();
        assert!(self.rows > 0 && self.window.positions > 0, "a row that sees itself");
        assert!(self.group(kv) * heads == self.heads, "query heads share KV heads evenly");
        assert!(self.position + self.rows <= self.end, "rows of the sequence");
        assert!(self.end <= self.blocks.len() * block, "positions outside the block table");
        let seen = &self.blocks[self.oldest() / block..];
        let block = kv.layout.block_bytes();
        let there = |&at: &u32| at as usize * kv.stride + block <= kv.data.len();
        assert!(seen.iter().all(there), "block outside the cache");
        assert!(self.q.len() >= self.rows * self.heads * dim, "a query per row");
        assert!(self.sinks.is_empty() || self.sinks.len() == self.heads, "a sink per head");
    }
}
