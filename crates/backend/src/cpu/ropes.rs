//! Rotary embeddings of the CPU: frequencies, and the angles of a batch.

use super::Cpu;
use crate::{Pairs, Rope};
use base::AlignedVec;

/// A rotary embedding.
pub(super) struct RopeTable {
    pub frequencies: Vec<f32>,
    pub magnitude: f32,
    pub pairs: Pairs,
    /// `[rows, frequencies]`.
    pub cos: AlignedVec<f32>,
    /// `[rows, frequencies]`.
    pub sin: AlignedVec<f32>,
}

impl Cpu {
    /// A rotary embedding, and cosines and sines of row `row`.
    pub(super) fn angles(&self, rope: Rope, row: usize) -> (&RopeTable, &[f32], &[f32]) {
        let table = &self.ropes[rope.0];
        let n = table.frequencies.len();
        (table, &table.cos[row * n..][..n], &table.sin[row * n..][..n])
    }
}
