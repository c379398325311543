//! Softmax: turns the scores of a span into weights, and combines spans.

use super::mac::Mac;
use crate::lanes::{LANES, Lanes};
use crate::math::exp_to_one;
use std::ops::Range;

/// The largest score of some positions and the sum of their weights, `exp(score - max)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Softmax {
    pub max: f32,
    pub sum: f32,
}

impl Softmax {
    /// The state before any position.
    pub const NONE: Self = Self { max: f32::NEG_INFINITY, sum: 0.0 };

    /// Whether there is no position.
    fn is_none(self) -> bool {
        self.max == f32::NEG_INFINITY && self.sum == 0.0
    }
}

/// Turns the scores of `columns` (whole sixteens) in `row` into weights, 0 outside `visible`.
/// The sum adds lane by lane in ascending order, then folds the lanes.
#[inline(always)]
pub(super) fn soften<M: Mac>(
    row: &mut [f32],
    columns: Range<usize>,
    visible: Range<usize>,
) -> Softmax {
    let chunks = columns.start / LANES..columns.end / LANES;
    if visible.is_empty() {
        for chunk in chunks {
            M::put_weights(M::Lanes::splat(0.0), row, chunk);
        }
        return Softmax::NONE;
    }
    row[columns.start..visible.start].fill(f32::NEG_INFINITY);
    row[visible.end..columns.end].fill(f32::NEG_INFINITY);
    let scores = &row.as_chunks::<LANES>().0[chunks.clone()];
    let mut largest = M::Lanes::load(&scores[0]);
    for scores in &scores[1..] {
        largest = largest.max(M::Lanes::load(scores));
    }
    let max = largest.max_lane();
    let mut sum = M::Lanes::splat(0.0);
    for chunk in chunks {
        let scores = M::Lanes::load(&row.as_chunks::<LANES>().0[chunk]);
        let weights = exp_to_one(scores.sub(M::Lanes::splat(max)));
        sum = sum.add(M::put_weights(weights, row, chunk));
    }
    Softmax { max, sum: sum.sum() }
}

/// Adds a span that follows those in `total`, and its weighted values to `sums`.
#[inline(always)]
pub(super) fn combine<L: Lanes>(
    total: &mut Softmax,
    sums: &mut [f32],
    span: Softmax,
    values: &[f32],
) {
    if span.is_none() {
        return;
    }
    let max = if span.max > total.max { span.max } else { total.max };
    let before = exp_to_one(L::splat(total.max - max));
    let here = exp_to_one(L::splat(span.max - max));
    let mut sum = [0.0; LANES];
    L::splat(span.sum).mul_add(here, L::splat(total.sum).mul(before)).store(&mut sum);
    *total = Softmax { max, sum: sum[0] };
    let (sums, _) = sums.as_chunks_mut::<LANES>();
    let (values, _) = values.as_chunks::<LANES>();
    for (sum, values) in sums.iter_mut().zip(values) {
        L::load(values).mul_add(here, L::load(sum).mul(before)).store(sum);
    }
}
