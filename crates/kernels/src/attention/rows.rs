//! Attention to a list of rows, each of them key and value for all heads (DeepSeek V4).
//!
//! Every output has one order of additions, whatever heads are computed together. Entries are
//! added in the order of the lists. [`SPAN`] entries, counted from the first, form a span. Within
//! a span: a score adds over the channels in ascending order; weights are `exp(score - largest)`;
//! their sum and the weighted values add over entries in ascending order. Spans are added in
//! ascending order with a running maximum, then the sink.
//!
//! Lanes are heads in scores and weights, so that neither has a horizontal sum, and channels in
//! weighted values. Rows become f32 a tile at a time, for all heads of a pass.
#![allow(unsafe_code)]

use super::mac::Tiles;
use super::tile::{QueryLanes, RowTile, TILE, UseProducts, each_tile, load_each, products};
use crate::isa::Isa;
use crate::kv::{RowList, SPAN};
use crate::lanes::{LANES, Lanes, isa_dispatch};
use crate::math::exp_to_one;
use base::AlignedVec;
use std::cell::RefCell;
use std::ops::Range;

/// Groups of sixteen heads that share a pass over the rows.
const GROUPS: usize = 4;
/// Heads of a pass.
const HEADS: usize = GROUPS * LANES;

/// The query of one position.
#[derive(Clone, Debug)]
pub struct RowQuery<'a> {
    /// Rotated queries `[heads, dim]` of all heads.
    pub q: &'a [f32],
    /// Heads whose outputs are computed.
    pub heads: Range<usize>,
    /// Factor of the scores.
    pub scale: f32,
    /// For each of all heads, the score of an entry without a value, which takes a share of the
    /// weights; or empty.
    pub sinks: &'a [f32],
}

/// Allocates the scratch of this thread for rows of `dim` values, so that [`attend_rows`] allocates
/// nothing later.
pub fn warm_up(dim: usize) {
    SCRATCH.with_borrow_mut(|scratch| scratch.fit(dim));
}

/// Attends to the rows of the first list, then to those of the second; all have as many values.
/// `out` is `[query.heads.len(), dim]`.
///
/// # Panics
/// If both lists are empty, or sizes do not agree.
pub fn attend_rows(isa: Isa, query: &RowQuery<'_>, lists: [RowList<'_>; 2], out: &mut [f32]) {
    let dim = lists[0].rows.dim;
    assert!(dim > 0 && lists[1].rows.dim == dim, "rows of one size");
    let heads = query.q.len() / dim;
    assert!(query.q.len() == heads * dim && query.heads.end <= heads, "queries of the heads");
    assert!(query.sinks.is_empty() || query.sinks.len() == heads, "a sink for each head");
    assert!(out.len() == query.heads.len() * dim, "outputs of the heads");
    assert!(!lists[0].is_empty() || !lists[1].is_empty(), "a row to attend to");
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.fit(dim);
        attend(isa, query, lists, out, scratch);
    });
}

isa_dispatch! {
    fn attend(
        query: &RowQuery<'_>,
        lists: [RowList<'_>; 2],
        out: &mut [f32],
        scratch: &mut RowScratch,
    ) = attend_body
}

#[inline(always)]
fn attend_body<L: Tiles>(
    query: &RowQuery<'_>,
    lists: [RowList<'_>; 2],
    out: &mut [f32],
    scratch: &mut RowScratch,
) {
    let dim = lists[0].rows.dim;
    let entries = lists[0].len() + lists[1].len();
    for (index, out) in out.chunks_mut(HEADS * dim).enumerate() {
        let first = query.heads.start + index * HEADS;
        let heads = first..first + out.len() / dim;
        scratch.queries.pack(&query.q[heads.start * dim..heads.end * dim]);
        scratch.total = Softmaxes::NONE;
        let totals = heads.len() * scratch.stride();
        scratch.totals[..totals].fill(0.0);
        for start in (0..entries).step_by(SPAN) {
            let span = start..(start + SPAN).min(entries);
            scratch.attend_span::<L>(lists, span, heads.len(), query.scale);
            scratch.add_up::<L>(heads.len());
        }
        scratch.put::<L>(query.sinks.get(heads).unwrap_or_default(), dim, out);
    }
}

/// The largest score of some entries and the sum of their weights, for each head.
#[derive(Clone, Copy)]
struct Softmaxes {
    max: [[f32; LANES]; GROUPS],
    sum: [[f32; LANES]; GROUPS],
}

impl Softmaxes {
    /// The state before any entry.
    const NONE: Self =
        Self { max: [[f32::NEG_INFINITY; LANES]; GROUPS], sum: [[0.0; LANES]; GROUPS] };
}

impl Default for Softmaxes {
    fn default() -> Self {
        Self::NONE
    }
}

/// Scratch memory, one per thread, reused by later calls.
#[derive(Default)]
struct RowScratch {
    queries: QueryLanes,
    tile: RowTile,
    /// Scores of a span, then weights, `[group][SPAN][16 heads]`.
    weights: AlignedVec<f32>,
    /// Weighted values of a span, and of all spans so far, `[HEADS][stride]`.
    sums: AlignedVec<f32>,
    totals: AlignedVec<f32>,
    span: Softmaxes,
    total: Softmaxes,
}

thread_local! {
    static SCRATCH: RefCell<RowScratch> = RefCell::default();
}

impl RowScratch {
    /// Makes space for rows of `dim` values.
    fn fit(&mut self, dim: usize) {
        self.queries.fit(dim, HEADS);
        self.tile.fit(dim);
        if self.weights.is_empty() {
            self.weights = AlignedVec::zeroed(GROUPS * SPAN * LANES);
        }
        if self.sums.len() < HEADS * self.stride() {
            self.sums = AlignedVec::zeroed(HEADS * self.stride());
            self.totals = AlignedVec::zeroed(HEADS * self.stride());
        }
    }

    fn stride(&self) -> usize {
        self.tile.stride()
    }

    /// Attends to the entries `span`: leaves the softmax of each head in `span` and its weighted
    /// values, not divided by the sum of the weights, in `sums`.
    #[inline(always)]
    fn attend_span<L: Tiles>(
        &mut self,
        lists: [RowList<'_>; 2],
        span: Range<usize>,
        heads: usize,
        scale: f32,
    ) {
        let groups = heads.div_ceil(LANES);
        let tiles = || span.clone().step_by(TILE).map(|at| at..(at + TILE).min(span.end));
        for entries in tiles() {
            self.tile.load::<L>(lists, entries.clone());
            let (queries, tile, at) = (&self.queries, &self.tile, entries.start - span.start);
            let mut scores = SpanScores { queries, tile, weights: &mut self.weights, at, scale };
            each_tile::<L>(entries.len(), groups, &mut scores);
        }
        for group in 0..groups {
            let weights = &mut self.weights[group * SPAN * LANES..][..span.len() * LANES];
            let (max, sum) = soften::<L>(weights.as_chunks_mut().0);
            max.store(&mut self.span.max[group]);
            sum.store(&mut self.span.sum[group]);
        }
        let sums = heads.next_multiple_of(LANES) * self.stride();
        self.sums[..sums].fill(0.0);
        for entries in tiles() {
            // The only tile is there still.
            if span.len() > TILE {
                self.tile.load::<L>(lists, entries.clone());
            }
            self.weigh::<L>(heads, entries.start - span.start, entries.len());
        }
    }

    /// Adds the rows of the tile, times their weights, to `sums`.
    #[inline(always)]
    fn weigh<L: Tiles>(&mut self, heads: usize, at: usize, rows: usize) {
        let columns = self.stride() - LANES;
        let mut d = 0;
        while d < columns {
            let vectors = (columns - d) / LANES;
            let width = match vectors {
                4.. if L::WIDE => 4,
                2.. if L::WIDE => 2,
                _ => 1,
            };
            for head in (0..heads).step_by(4) {
                match width {
                    4 => self.weigh_tile::<L, 4, 4>((head, d), at, rows),
                    2 => self.weigh_tile::<L, 4, 2>((head, d), at, rows),
                    _ => self.weigh_tile::<L, 4, 1>((head, d), at, rows),
                }
            }
            d += width * LANES;
        }
    }

    /// [`weigh`](Self::weigh) for `H` heads from `head` on, of one group, and `W * 16` channels
    /// from `d` on.
    #[inline(always)]
    fn weigh_tile<L: Tiles, const H: usize, const W: usize>(
        &mut self,
        (head, d): (usize, usize),
        at: usize,
        rows: usize,
    ) {
        let stride = self.stride();
        let (group, lane) = (head / LANES, head % LANES);
        assert!(lane + H <= LANES && d + W * LANES <= stride, "heads of a group");
        let weights = &self.weights[(group * SPAN + at) * LANES..][..rows * LANES];
        let tile = self.tile.rows(rows).as_ptr();
        let sums = self.sums[head * stride..][..H * stride].as_mut_ptr();
        // SAFETY: the slices have `rows` sixteens of weights, `rows` rows and `H` heads of `stride`
        // values; the assertion holds the rest.
        unsafe {
            let (weights, tile, sums) = (weights.as_ptr().add(lane), tile.add(d), sums.add(d));
            let mut acc = [[L::splat(0.0); W]; H];
            for (h, acc) in acc.iter_mut().enumerate() {
                *acc = load_each(sums.add(h * stride), LANES);
            }
            for j in 0..rows {
                let values: [L; W] = load_each(tile.add(j * stride), LANES);
                for (h, acc) in acc.iter_mut().enumerate() {
                    let weight = L::splat(*weights.add(j * LANES + h));
                    for (acc, values) in acc.iter_mut().zip(values) {
                        *acc = weight.mul_add(values, *acc);
                    }
                }
            }
            for (h, acc) in acc.into_iter().enumerate() {
                for (w, acc) in acc.into_iter().enumerate() {
                    acc.store_at(sums.add(h * stride + w * LANES));
                }
            }
        }
    }

    /// Adds the span to the total.
    #[inline(always)]
    fn add_up<L: Tiles>(&mut self, heads: usize) {
        let stride = self.stride();
        for group in 0..heads.div_ceil(LANES) {
            let (span, total) = (&self.span, &mut self.total);
            let shares = combine::<L>(total, group, &span.max[group], &span.sum[group]);
            for (lane, head) in (group * LANES..heads).take(LANES).enumerate() {
                let (before, here) = (L::splat(shares[0][lane]), L::splat(shares[1][lane]));
                let at = head * stride..(head + 1) * stride - LANES;
                let totals = self.totals[at.clone()].as_chunks_mut::<LANES>().0;
                let sums = self.sums[at].as_chunks::<LANES>().0;
                for (total, sum) in totals.iter_mut().zip(sums) {
                    L::load(sum).mul_add(here, L::load(total).mul(before)).store(total);
                }
            }
        }
    }

    /// Adds the sinks, if there are any, and divides by the sums of the weights.
    #[inline(always)]
    fn put<L: Tiles>(&mut self, sinks: &[f32], dim: usize, out: &mut [f32]) {
        let mut before = [[1.0; LANES]; GROUPS];
        for (group, sinks) in sinks.chunks(LANES).enumerate() {
            let mut max = [0.0; LANES];
            max[..sinks.len()].copy_from_slice(sinks);
            [before[group], _] = combine::<L>(&mut self.total, group, &max, &[1.0; LANES]);
        }
        for (head, out) in out.chunks_exact_mut(dim).enumerate() {
            let (group, lane) = (head / LANES, head % LANES);
            let (before, sum) = (before[group][lane], self.total.sum[group][lane]);
            let totals = &self.totals[head * self.stride()..][..dim];
            for (out, total) in out.iter_mut().zip(totals) {
                *out = total * before / sum;
            }
        }
    }
}

/// Where the scores of a tile go.
struct SpanScores<'a> {
    queries: &'a QueryLanes,
    tile: &'a RowTile,
    weights: &'a mut [f32],
    /// Entry of the span that is the tile's first row.
    at: usize,
    scale: f32,
}

impl<L: Tiles> UseProducts<L> for SpanScores<'_> {
    #[inline(always)]
    fn tile<const R: usize, const G: usize>(&mut self, row: usize, group: usize) {
        let channels = 0..self.tile.dim();
        let all = products::<L, R, G>(self.queries, self.tile, (row, group), channels);
        for (r, groups) in all.into_iter().enumerate() {
            for (g, product) in groups.into_iter().enumerate() {
                let at = ((group + g) * SPAN + self.at + row + r) * LANES;
                let scores = self.weights[at..].first_chunk_mut().expect("sixteen heads");
                product.mul(L::splat(self.scale)).store(scores);
            }
        }
    }
}

/// Turns the scores of sixteen heads into weights; returns the largest scores and the sums of the
/// weights.
#[inline(always)]
fn soften<L: Lanes>(scores: &mut [[f32; LANES]]) -> (L, L) {
    let mut max = L::load(&scores[0]);
    for scores in &scores[1..] {
        max = max.max(L::load(scores));
    }
    let mut sum = L::splat(0.0);
    for scores in scores {
        let weights = exp_to_one(L::load(scores).sub(max));
        sum = sum.add(weights);
        weights.store(scores);
    }
    (max, sum)
}

/// Adds entries with the given largest scores and sums of weights to the total of a group of heads;
/// returns the factors of the values before and of the values of these entries.
#[inline(always)]
fn combine<L: Lanes>(
    total: &mut Softmaxes,
    group: usize,
    max: &[f32; LANES],
    sum: &[f32; LANES],
) -> [[f32; LANES]; 2] {
    let (old, new) = (L::load(&total.max[group]), L::load(max));
    let largest = old.max(new);
    let (before, here) = (exp_to_one(old.sub(largest)), exp_to_one(new.sub(largest)));
    let sums = L::load(sum).mul_add(here, L::load(&total.sum[group]).mul(before));
    largest.store(&mut total.max[group]);
    sums.store(&mut total.sum[group]);
    let mut factors = [[0.0; LANES]; 2];
    before.store(&mut factors[0]);
    here.store(&mut factors[1]);
    factors
}

#[cfg(test)]
mod tests;
