//! Scratch of a thread that computes attention, kept for its next call.

use super::softmax::Softmax;
use crate::kv::{MAX_HEAD_DIM, SPAN};
use base::AlignedVec;
use std::cell::RefCell;

/// Query vectors that pass over the same keys and values together.
pub(super) const QUERIES: usize = 16;
/// Values between the rows of two queries' scores: not a power of two, or they would all compete
/// for the same lines of the first cache.
pub(super) const ROW: usize = SPAN + 16;

pub(super) struct AttentionScratch {
    /// Queries as factors, for one register tile after the other.
    pub factors: AlignedVec<f32>,
    /// Factors of one query.
    pub row: AlignedVec<f32>,
    /// Scores of a span, then weights, `[queries][ROW]`.
    pub scores: AlignedVec<f32>,
    /// Weighted values of a span, and of all spans so far, `[queries][value stride]`.
    pub sums: AlignedVec<f32>,
    pub totals: AlignedVec<f32>,
    /// Values of the blocks of a run, where they are part of the keys; allocated at the first use.
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
