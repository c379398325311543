//! Rotary embeddings of the CPU: frequencies, and the angles of a batch.

use crate::cpu::Cpu;
use crate::{Error, LongRows, Pairs, Rope};
use base::AlignedVec;
use kernels::rope::{self, Magnitude};

/// A rotary embedding.
pub(in crate::cpu) struct RopeTable {
    pub frequencies: Vec<f32>,
    pub magnitude: Magnitude,
    pub pairs: Pairs,
    /// `[rows, frequencies]`.
    pub cos: AlignedVec<f32>,
    /// `[rows, frequencies]`.
    pub sin: AlignedVec<f32>,
}

impl RopeTable {
    /// An embedding with memory for the angles of `rows` rows.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn new(
        frequencies: Vec<f32>,
        magnitude: Magnitude,
        pairs: Pairs,
        rows: usize,
    ) -> Result<Self, Error> {
        let angles = || AlignedVec::try_zeroed(rows.saturating_mul(frequencies.len()));
        let (cos, sin) = (angles()?, angles()?);
        Ok(Self { frequencies, magnitude, pairs, cos, sin })
    }
}

impl Cpu {
    /// Computes the angles of `positions`, one row each.
    pub(in crate::cpu) fn compute_angles(
        &mut self,
        rope: Rope,
        positions: &[u32],
        long: LongRows<'_>,
    ) {
        let table = &mut self.ropes[rope.0];
        let (mut cos, mut sin) = (std::mem::take(&mut table.cos), std::mem::take(&mut table.sin));
        let n = table.frequencies.len();
        for (row, position) in positions.iter().enumerate() {
            let table = &self.ropes[long.of_row(row).unwrap_or(rope).0];
            let (cos, sin) = (&mut cos[row * n..][..n], &mut sin[row * n..][..n]);
            rope::angles(*position, &table.frequencies, table.magnitude.at(*position), cos, sin);
        }
        (self.ropes[rope.0].cos, self.ropes[rope.0].sin) = (cos, sin);
    }

    /// A rotary embedding, and cosines and sines of row `row`.
    pub(in crate::cpu) fn angles(&self, rope: Rope, row: usize) -> (&RopeTable, &[f32], &[f32]) {
        let table = &self.ropes[rope.0];
        let n = table.frequencies.len();
        (table, &table.cos[row * n..][..n], &table.sin[row * n..][..n])
    }
}
