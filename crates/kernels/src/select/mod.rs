//! The index of compressed rows: scores of rows against the heads of a query, and the choice of
//! the rows with the highest scores (DeepSeek V4).
//!
//! A score is `sum over heads of weight * max(0, q . row)`. One order for every row, whatever rows
//! are scored together: a product adds the channels of a block of 32 in ascending order from zero,
//! then blocks in ascending order; head `h` of the sum is added in lane `h % 16`, in ascending
//! order, and the lanes are folded. Of rounded values ([`Rounding::Fp4`](crate::kv::Rounding::Fp4))
//! the sum of a block is exact, so integer products of their codes give the same bits, unless a
//! product of two scales leaves the range of f32.

mod codes;
mod heads;

use crate::attention::{QueryLanes, RowTile, TILE, Tiles, UseProducts, each_tile, products};
use crate::isa::Isa;
use crate::kv::RowList;
use crate::lanes::{LANES, isa_dispatch};
use codes::CodeScratch;
use heads::{BLOCK, add_heads};
use std::cell::RefCell;

/// Scratch memory, one per thread, reused by later calls.
#[derive(Default)]
struct IndexScratch {
    queries: QueryLanes,
    tile: RowTile,
    /// Weights of the heads, in whole sixteens.
    weights: Vec<f32>,
    codes: CodeScratch,
}

thread_local! {
    static SCRATCH: RefCell<IndexScratch> = RefCell::default();
}

/// Scores of all rows of the list: `out[i] = sum over h of weights[h] * max(0, q[h] . row i)`.
/// `q` is `[heads, dim]`; a product that is NaN makes the score NaN.
///
/// # Panics
/// If sizes do not agree.
pub fn index_scores(isa: Isa, q: &[f32], weights: &[f32], rows: RowList<'_>, out: &mut [f32]) {
    let (dim, heads) = (rows.rows.dim, weights.len());
    assert!(dim > 0 && heads > 0 && q.len() == heads * dim, "a query and a weight for each head");
    assert!(out.len() == rows.len(), "a score for each row");
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.weights.clear();
        scratch.weights.extend_from_slice(weights);
        scratch.weights.resize(heads.next_multiple_of(LANES), 0.0);
        if codes::pack(isa, q, rows.rows, &mut scratch.codes) {
            codes::scores(isa, rows, &scratch.weights, &mut scratch.codes, out);
        } else {
            scratch.queries.fit(dim, heads);
            scratch.tile.fit(dim);
            float_scores(isa, q, rows, scratch, out);
        }
    });
}

isa_dispatch! {
    fn float_scores(
        q: &[f32],
        rows: RowList<'_>,
        scratch: &mut IndexScratch,
        out: &mut [f32],
    ) = float_scores_body
}

#[inline(always)]
fn float_scores_body<L: Tiles>(
    q: &[f32],
    rows: RowList<'_>,
    scratch: &mut IndexScratch,
    out: &mut [f32],
) {
    let IndexScratch { queries, tile, weights, .. } = scratch;
    queries.pack(q);
    let nothing = RowList { offsets: &[], ..rows };
    for (index, out) in out.chunks_mut(TILE).enumerate() {
        let first = index * TILE;
        tile.load::<L>([rows, nothing], first..first + out.len());
        let sums = [[0.0; LANES]; TILE];
        let weights = weights.as_chunks().0;
        let mut scores = TileScores { queries, tile, weights, sums };
        each_tile::<L>(out.len(), weights.len(), &mut scores);
        for (out, sums) in out.iter_mut().zip(&scores.sums) {
            *out = L::load(sums).sum();
        }
    }
}

/// Sums of a tile of rows, each in sixteen lanes.
struct TileScores<'a> {
    queries: &'a QueryLanes,
    tile: &'a RowTile,
    weights: &'a [[f32; LANES]],
    sums: [[f32; LANES]; TILE],
}

impl<L: Tiles> UseProducts<L> for TileScores<'_> {
    #[inline(always)]
    fn tile<const R: usize, const G: usize>(&mut self, row: usize, group: usize) {
        let dim = self.tile.dim();
        let mut totals = [[L::splat(0.0); G]; R];
        let mut start = 0;
        while start < dim {
            let end = (start + BLOCK).min(dim);
            let at = (row, group);
            let block = products::<L, R, G>(self.queries, self.tile, at, start..end);
            for (totals, block) in totals.iter_mut().zip(block) {
                for (total, block) in totals.iter_mut().zip(block) {
                    *total = total.add(block);
                }
            }
            start = end;
        }
        for (sums, totals) in self.sums[row..].iter_mut().zip(totals) {
            add_heads(sums, totals, &self.weights[group..]);
        }
    }
}

/// Writes the numbers of the `k` highest scores, ascending, or all numbers if there are no more.
/// Of equal scores the lower number is chosen; NaN is below all others. `scratch` is working
/// memory. The time is proportional to the number of scores.
pub fn top_k(scores: &[f32], k: usize, scratch: &mut Vec<u32>, chosen: &mut Vec<u32>) {
    chosen.clear();
    if k >= scores.len() {
        chosen.extend(0..scores.len() as u32);
        return;
    }
    if k == 0 {
        return;
    }
    scratch.clear();
    scratch.extend(scores.iter().map(|score| rank(*score)));
    let (_, lowest, higher) = scratch.select_nth_unstable(scores.len() - k);
    let lowest = *lowest;
    // The others above the lowest chosen are of its rank or above it.
    let mut equals = k - higher.iter().filter(|rank| **rank > lowest).count();
    for (number, score) in scores.iter().enumerate() {
        let rank = rank(*score);
        let equal = rank == lowest && equals > 0;
        if rank > lowest || equal {
            chosen.push(number as u32);
            equals -= usize::from(equal);
        }
    }
}

/// Numbers in the order of scores: zeros are equal, NaN is lowest.
#[inline]
fn rank(score: f32) -> u32 {
    // Zero without its sign.
    let bits = (score + 0.0).to_bits();
    match score.is_nan() {
        true => 0,
        false if bits >> 31 == 1 => !bits,
        false => bits | 1 << 31,
    }
}

#[cfg(test)]
mod tests;
