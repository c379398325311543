//! Attention over one span of positions for the queries of one pass.
#![allow(unsafe_code)]

use super::latent;
use super::mac::Mac;
use super::scores::{self, KeyBlock};
use super::scratch::{AttentionScratch, QUERIES, ROW};
use super::softmax::soften;
use super::source::KvSource;
use super::values::{self, BLOCKS, ValueRun};
use crate::attention::query::{KvRef, Query};
use crate::kv::SPAN;
use crate::lanes::{LANES, Lanes};
use base::AlignedVec;
use std::ops::Range;

/// Values of a cache line.
const LINE: usize = 16;

/// Positions over which weighted sums stay in registers.
const RUN: usize = 128;

/// Query vectors `first..first + count` of one KV head. The vectors of a KV head are the rows times
/// the heads of its group.
#[derive(Clone, Copy)]
pub(super) struct QueryPass<'a> {
    pub query: &'a Query<'a>,
    pub kv: KvRef<'a>,
    pub kv_head: usize,
    pub first: usize,
    pub count: usize,
    /// Bytes of a head in a block, and where its values begin.
    head_bytes: usize,
    value_start: usize,
}

impl<'a> QueryPass<'a> {
    /// All passes of `query` over `kv_head`.
    pub fn all(query: &'a Query<'a>, kv: KvRef<'a>, kv_head: usize) -> impl Iterator<Item = Self> {
        let vectors = query.rows * query.group(kv);
        let (head_bytes, value_start) = (kv.layout.head_bytes(), kv.layout.value_start());
        (0..vectors).step_by(QUERIES).map(move |first| {
            let count = QUERIES.min(vectors - first);
            Self { query, kv, kv_head, first, count, head_bytes, value_start }
        })
    }

    /// Row of the query, and head inside the group, of the pass's vector `i`.
    pub fn row_and_head(&self, i: usize) -> (usize, usize) {
        let group = self.query.group(self.kv);
        ((self.first + i) / group, (self.first + i) % group)
    }

    /// The sink of head `head` inside the group.
    pub fn sink(&self, head: usize) -> Option<f32> {
        let first = self.kv_head * self.query.group(self.kv);
        self.query.sinks.get(first + head).copied()
    }

    fn position(&self, i: usize) -> usize {
        self.query.position + self.row_and_head(i).0
    }

    fn vector(&self, i: usize) -> &'a [f32] {
        let (dim, (row, head)) = (self.kv.layout.dim, self.row_and_head(i));
        let head = self.kv_head * self.query.group(self.kv) + head;
        &self.query.q[(row * self.query.heads + head) * dim..][..dim]
    }

    /// The first and the last position that any vector attends to.
    pub fn reach(&self) -> (usize, usize) {
        let oldest = self.query.window.first_seen(self.position(0));
        (oldest, self.query.seen_end(self.position(self.count - 1)) - 1)
    }

    /// Columns of the span beginning at `start` that vector `i` attends to.
    fn visible(&self, i: usize, start: usize) -> Range<usize> {
        let position = self.position(i);
        let column = |position: usize| position.saturating_sub(start).min(SPAN);
        column(self.query.window.first_seen(position))..column(self.query.seen_end(position))
    }

    /// The bytes of this KV head in the block of `position`, and those in the next block (or the
    /// same at the end).
    #[inline(always)]
    fn heads(&self, position: usize) -> (&'a [u8], &'a [u8]) {
        let at = position / self.kv.layout.block;
        let next = (at + 1).min(self.query.blocks.len() - 1);
        let head = |block: usize| {
            let block = self.query.blocks[block] as usize * self.kv.stride;
            &self.kv.data[block + self.kv_head * self.head_bytes..][..self.head_bytes]
        };
        (head(at), head(next))
    }
}

/// Packs the queries of the pass for [`attend`].
#[inline(always)]
pub(super) fn prepare<S: KvSource>(pass: &QueryPass<'_>, scratch: &mut AttentionScratch) {
    for i in 0..pass.count {
        for value in pass.vector(i).iter().step_by(LINE) {
            <S::Mac as Mac>::Lanes::prefetch(value);
        }
    }
    scores::pack::<S::Mac>(&pass.kv.layout, (0..pass.count).map(|i| pass.vector(i)), scratch);
}

/// Attends to span `span`: leaves the softmax of each vector in `scratch.softmax` and its weighted
/// values, not yet divided by the sum of the weights, in `scratch.sums`.
#[inline(always)]
pub(super) fn attend<S: KvSource>(
    pass: &QueryPass<'_>,
    span: usize,
    scratch: &mut AttentionScratch,
) {
    let start = span * SPAN;
    let (oldest, last) = pass.reach();
    let block = pass.kv.layout.block;
    let columns = oldest.saturating_sub(start) / block * block..(last + 1 - start).min(SPAN);
    score::<S>(pass, start, columns.clone(), scratch);
    let whole = columns.start..columns.end.next_multiple_of(LANES);
    for i in 0..pass.count {
        let row = &mut scratch.scores[i * ROW..][..ROW];
        scratch.softmax[i] = soften::<S::Mac>(row, whole.clone(), pass.visible(i, start));
    }
    weigh::<S>(pass, start, columns, scratch);
}

#[inline(always)]
fn score<S: KvSource>(
    pass: &QueryPass<'_>,
    start: usize,
    columns: Range<usize>,
    scratch: &mut AttentionScratch,
) {
    let layout = &pass.kv.layout;
    for at in columns.clone().step_by(layout.block) {
        let (head, next) = pass.heads(start + at);
        // The first values are prefetched with the last keys.
        let last = at + layout.block >= columns.end;
        let ahead = match last {
            true => pass.heads(start + columns.start).0.as_ptr().wrapping_add(pass.value_start),
            false => next.as_ptr(),
        };
        let keys = KeyBlock {
            units: head.as_ptr(),
            scales: head[layout.key_scales()..].as_ptr(),
            ahead,
            steps: layout.dim.div_ceil(S::Mac::WIDTH),
            block: layout.block,
            scale: pass.query.scale,
        };
        let positions = (columns.end - at).min(layout.block).next_multiple_of(LANES);
        // SAFETY: these are the keys of one head of one block.
        unsafe { scores::scores::<S>(keys, (pass.count, positions, at), scratch) };
    }
}

#[inline(always)]
fn weigh<S: KvSource>(
    pass: &QueryPass<'_>,
    start: usize,
    columns: Range<usize>,
    scratch: &mut AttentionScratch,
) {
    let layout = &pass.kv.layout;
    let stride = layout.value_stride();
    if layout.latent.is_some() && scratch.latent.len() < BLOCKS * layout.value_bytes() {
        scratch.latent = AlignedVec::zeroed(BLOCKS * layout.value_bytes());
    }
    scratch.sums[..pass.count * stride].fill(0.0);
    let blocks = (RUN / layout.block).clamp(1, BLOCKS);
    for at in columns.clone().step_by(blocks * layout.block) {
        let positions = (columns.end - at).min(blocks * layout.block);
        let mut run = ValueRun {
            units: [std::ptr::null(); BLOCKS],
            ahead: [std::ptr::null(); BLOCKS],
            scales: layout.value_scales(),
            groups: layout.value_groups(),
            per_block: layout.block / S::Mac::WIDTH,
            len: positions.div_ceil(S::Mac::WIDTH),
            stride,
        };
        let mut transposed = scratch.latent.chunks_exact_mut(layout.value_bytes());
        for (i, first) in (at..at + positions).step_by(layout.block).enumerate() {
            let (head, next) = pass.heads(start + first);
            (run.units[i], run.ahead[i]) = match layout.latent {
                None => (head[pass.value_start..].as_ptr(), next[pass.value_start..].as_ptr()),
                Some(_) => {
                    let left = (at + positions - first).min(layout.block);
                    let values = transposed.next().expect("room for a run of blocks");
                    latent::values::<<S::Mac as Mac>::Lanes>(layout, head, left, values);
                    (values.as_ptr(), next.as_ptr())
                }
            };
        }
        // SAFETY: `units` are the values of one head of each block of the run.
        unsafe { values::weigh::<S>(&run, (pass.count, at), scratch) };
    }
}
