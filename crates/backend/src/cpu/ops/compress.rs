//! Compressed rows (DeepSeek V4): positions pooled into one row.

use super::products::grown;
use crate::cpu::Cpu;
use crate::cpu::kv::PlainRef;
use crate::{Batch, Compression};
use base::AlignedVec;
use kernels::compress::{PoolSlot, pool};
use kernels::{elementwise, kv, rope};

/// Pooled positions that are listed without an allocation.
const STACK_SLOTS: usize = 128;

/// The rows of a call; kept, so that the next one allocates nothing.
#[derive(Default)]
pub(in crate::cpu) struct CompressScratch {
    /// Sequence and number of each row that is completed.
    complete: Vec<(usize, usize)>,
    /// `[complete rows, dim]`.
    pooled: AlignedVec<f32>,
}

impl CompressScratch {
    /// Reserves space for all rows of `dim` values that a batch of `rows` rows can complete.
    pub fn reserve(&mut self, rows: usize, dim: usize) {
        self.complete.reserve(rows);
        grown(&mut self.pooled, rows.saturating_mul(dim));
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        4 * self.pooled.len()
    }
}

/// The sources of compressed rows.
struct Sources<'a> {
    values: PlainRef<'a>,
    gates: PlainRef<'a>,
    /// `[every, width]`.
    bias: &'a [f32],
    /// Values of a row.
    dim: usize,
    every: usize,
    overlap: bool,
}

impl<'a> Sources<'a> {
    /// Calls `f` with the pooled positions of row `number`, ascending.
    fn slots<R>(&self, number: usize, table: &[u32], f: impl FnOnce(&[PoolSlot<'a>]) -> R) -> R {
        let (dim, every) = (self.dim, self.every);
        let first = (number * every).saturating_sub(if self.overlap { every } else { 0 });
        let slot = |position: usize| {
            let own = position >= number * every;
            let start = if self.overlap && own { dim } else { 0 };
            let part = |rows: &PlainRef<'a>| {
                let bytes = &rows.data[rows.offset(position, table)..][..rows.plain.row_bytes()];
                &bytemuck::cast_slice::<u8, f32>(bytes)[start..start + dim]
            };
            let bias = position % every * (self.bias.len() / every) + start;
            let bias = &self.bias[bias..bias + dim];
            PoolSlot { value: part(&self.values), gate: part(&self.gates), bias }
        };
        let positions = first..(number + 1) * every;
        let mut slots = [PoolSlot { value: &[], gate: &[], bias: &[] }; STACK_SLOTS];
        let count = positions.len();
        if count > STACK_SLOTS {
            return f(&positions.map(slot).collect::<Vec<_>>());
        }
        slots.iter_mut().zip(positions).for_each(|(to, position)| *to = slot(position));
        f(&slots[..count])
    }
}

impl Cpu {
    /// Computes the rows that the batch completes, and stores them.
    pub(in crate::cpu) fn compress_rows(
        &mut self,
        layer: usize,
        spec: &Compression,
        batch: &Batch,
    ) {
        self.pool.begin("compress");
        let mut scratch = std::mem::take(&mut self.compressed);
        let out = self.kv.plain(layer, spec.out).rows;
        let (dim, every) = (out.dim, out.every);
        scratch.complete.clear();
        for (index, sequence) in batch.sequences().iter().enumerate() {
            let end = sequence.end();
            let rows = sequence.position / every..end / every;
            scratch.complete.extend(rows.map(|number| (index, number)));
        }
        if !scratch.complete.is_empty() {
            let sources = Sources {
                values: self.kv.plain(layer, spec.values),
                gates: self.kv.plain(layer, spec.gates),
                bias: &self.vectors[spec.bias.0],
                dim,
                every,
                overlap: spec.overlap,
            };
            let CompressScratch { complete, pooled } = &mut scratch;
            let pooled = grown(pooled, complete.len() * dim);
            self.pool.for_each_tile(pooled, dim, (1, dim), |mut tile| {
                let at = tile.rows().start;
                let (index, number) = complete[at];
                let table = batch.block_table(&batch.sequences()[index], sources.values.group);
                let row = tile.row_mut(at);
                sources.slots(number, table, |slots| pool(self.isa, slots, row));
                self.finish_row(spec, number * every, row);
                kv::round(self.isa, self.kv.plain(layer, spec.out).plain.rounding, row);
            });
        }
        let group = self.kv.plain(layer, spec.out).group;
        let rows = scratch.pooled.chunks_exact(dim);
        for ((index, number), row) in scratch.complete.iter().zip(rows) {
            let table = batch.block_table(&batch.sequences()[*index], group);
            self.kv.store_one((layer, spec.out), (*number, table), row);
        }
        self.compressed = scratch;
    }

    /// Normalises a pooled row and rotates its last values by `position`.
    fn finish_row(&self, spec: &Compression, position: usize, row: &mut [f32]) {
        super::products::scratch(row.len(), |normed| {
            elementwise::rms_norm(self.isa, row, &self.vectors[spec.norm.0], spec.eps, normed);
            row.copy_from_slice(normed);
        });
        let super::ropes::RopeTable { frequencies, magnitude, pairs, .. } =
            &self.ropes[spec.rope.0];
        let pairs_of_row = frequencies.len();
        super::products::scratch(2 * pairs_of_row, |angles| {
            let (cos, sin) = angles.split_at_mut(pairs_of_row);
            rope::angles(position as u32, frequencies, magnitude.at(position as u32), cos, sin);
            let rotated = 2 * pairs_of_row;
            let start = row.len() - rotated;
            rope::rotate(self.isa, &mut row[start..], rotated, *pairs, cos, sin);
        });
    }
}
