//! Scratch memory of attention, one per thread, reused by later calls.

use super::softmax::Softmax;
use crate::kv::{MAX_HEAD_DIM, SPAN};
use base::AlignedVec;
use std::cell::RefCell;

/// Number of query vectors that share one pass over keys and values.
pub(super) const QUERIES: usize = 24;
/// Values from one query's row of scores to the next: not a power of two, because the rows would
/// compete for the same lines of the L1 cache.
pub(super) const ROW: usize = SPAN + 16;

pub(super) struct AttentionScratch {
    /// Queries as factors, one register tile after another.
    pub factors: AlignedVec<f32>,
    /// Factors of one query.
    pub row: AlignedVec<f32>,
    /// Scores of a span, then weights, `[queries][ROW]`.
    pub scores: AlignedVec<f32>,
    /// Weighted values of a span, and of all spans so far, `[queries][value stride]`.
    pub sums: AlignedVec<f32>,
    pub totals: AlignedVec<f32>,
    /// Values of the blocks of a run if values are part of the keys; allocated at the first use.
    pub latent: AlignedVec<u8>,
    pub softmax: [Softmax; QUERIES],
    pub total: [Softmax; QUERIES],
}

impl AttentionScratch {
    fn new() -> Self {
        let values = QUERIES * MAX_HEAD_DIM;
        Self {
            factors: AlignedVec::zeroed(values),
            row: AlignedVec::zeroed(MAX_HEAD_DIM),
            scores: AlignedVec::zeroed(QUERIES * ROW),
            sums: AlignedVec::zeroed(values),
            totals: AlignedVec::zeroed(values),
            latent: AlignedVec::default(),
            softmax: [Softmax::NONE; QUERIES],
            total: [Softmax::NONE; QUERIES],
        }
    }
}

thread_local! {
    /// The scratch of each thread.
    pub(super) static SCRATCH: RefCell<AttentionScratch> = RefCell::new(AttentionScratch::new());
}
