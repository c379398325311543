//! Rotary embeddings of the CPU: frequencies, and the angles of a batch.

use crate::cpu::core::CpuCore;
use crate::cpu::scratch::scratch;
use crate::error::Error;
use crate::handles::{HeadColumns, LongRows, Pairs, Rope};
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

/// All rotary embeddings.
#[derive(Default)]
pub(in crate::cpu) struct Ropes(Vec<RopeTable>);

impl Ropes {
    /// Adds an embedding.
    pub fn add(&mut self, table: RopeTable) -> Rope {
        self.0.push(table);
        Rope(self.0.len() - 1)
    }

    /// An embedding.
    pub fn table(&self, rope: Rope) -> &RopeTable {
        &self.0[rope.0]
    }

    /// Bytes of angles.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|table| 8 * table.cos.len()).sum()
    }

    /// Computes the angles of `positions`, one row each.
    pub fn compute_angles(
        &mut self,
        core: &CpuCore,
        rope: Rope,
        positions: &[u32],
        long: LongRows<'_>,
    ) {
        core.pool.begin("rope_angles");
        let table = &mut self.0[rope.0];
        let (mut cos, mut sin) = (std::mem::take(&mut table.cos), std::mem::take(&mut table.sin));
        let n = table.frequencies.len();
        for (row, position) in positions.iter().enumerate() {
            let table = &self.0[long.of_row(row).unwrap_or(rope).0];
            let (cos, sin) = (&mut cos[row * n..][..n], &mut sin[row * n..][..n]);
            rope::angles(*position, &table.frequencies, table.magnitude.at(*position), cos, sin);
        }
        (self.0[rope.0].cos, self.0[rope.0].sin) = (cos, sin);
    }

    /// A rotary embedding, and cosines and sines of row `row`.
    fn angles(&self, rope: Rope, row: usize) -> (&RopeTable, &[f32], &[f32]) {
        let table = &self.0[rope.0];
        let n = table.frequencies.len();
        (table, &table.cos[row * n..][..n], &table.sin[row * n..][..n])
    }

    /// Rotates heads by the angles of their rows.
    pub fn rotate(&self, core: &mut CpuCore, x: HeadColumns, rope: Rope, rows: usize) {
        core.each_row("rotate", (x.buffer, rows), |core, row, values| {
            let (RopeTable { pairs, .. }, cos, sin) = self.angles(rope, row);
            rope::rotate(core.isa, &mut values[x.first..], x.stride, *pairs, cos, sin);
        });
    }

    /// As [`rotate`](Self::rotate), by the negated angles.
    pub fn rotate_back(&self, core: &mut CpuCore, x: HeadColumns, rope: Rope, rows: usize) {
        core.each_row("rotate_back", (x.buffer, rows), |core, row, values| {
            let (RopeTable { pairs, .. }, cos, sin) = self.angles(rope, row);
            scratch(sin.len(), |negated| {
                negated.iter_mut().zip(sin).for_each(|(to, from)| *to = -from);
                rope::rotate(core.isa, &mut values[x.first..], x.stride, *pairs, cos, negated);
            });
        });
    }
}
