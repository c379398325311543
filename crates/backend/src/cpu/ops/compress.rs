//! Compressed rows (DeepSeek V4): positions pooled into one row.

use super::ropes::{RopeTable, Ropes};
use crate::batch::Batch;
use crate::cpu::core::CpuCore;
use crate::cpu::kv::{KvCache, PlainRef};
use crate::cpu::scratch::{grown, scratch};
use crate::handles::Compression;
use base::AlignedVec;
use kernels::Isa;
use kernels::compress::{PoolSlot, pool};
use kernels::kv::round;
use kernels::{elementwise, rope};

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
    /// With what is added to them, `[every, width]`.
    gates: Option<(PlainRef<'a>, &'a [f32])>,
    /// Values of a row.
    dim: usize,
    every: usize,
    overlap: bool,
}

impl<'a> Sources<'a> {
    /// Computes row `number`: of gates with a bias, or else the mean.
    fn pool(&self, isa: Isa, number: usize, table: &[u32], row: &mut [f32]) {
        if let Some((gates, bias)) = &self.gates {
            return self.slots((gates, bias), number, table, |slots| pool(isa, slots, row));
        }
        row.fill(0.0);
        for position in number * self.every..(number + 1) * self.every {
            elementwise::add(isa, row, self.stored(&self.values, position, table));
        }
        elementwise::scale(isa, row, 1.0 / self.every as f32);
    }

    /// What is stored of a position.
    fn stored(&self, rows: &PlainRef<'a>, position: usize, table: &[u32]) -> &'a [f32] {
        let bytes = &rows.data[rows.offset(position, table)..][..rows.plain.row_bytes()];
        bytemuck::cast_slice(bytes)
    }

    /// Calls `f` with the pooled positions of row `number`, ascending.
    fn slots<R>(
        &self,
        (gates, bias): (&PlainRef<'a>, &'a [f32]),
        number: usize,
        table: &[u32],
        f: impl FnOnce(&[PoolSlot<'a>]) -> R,
    ) -> R {
        let (dim, every) = (self.dim, self.every);
        let first = (number * every).saturating_sub(if self.overlap { every } else { 0 });
        let slot = |position: usize| {
            let own = position >= number * every;
            let start = if self.overlap && own { dim } else { 0 };
            let part = |rows| &self.stored(rows, position, table)[start..start + dim];
            let first = position % every * (bias.len() / every) + start;
            let bias = &bias[first..first + dim];
            PoolSlot { value: part(&self.values), gate: part(gates), bias }
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

impl CompressScratch {
    /// Computes the rows that the batch completes, and stores them.
    pub fn compress(
        &mut self,
        core: &CpuCore,
        ropes: &Ropes,
        kv: &mut KvCache,
        layer: usize,
        spec: &Compression,
        batch: &Batch,
    ) {
        core.pool.begin("compress");
        let Self { complete, pooled } = self;
        let out = kv.plain(layer, spec.out).rows;
        let (dim, every) = (out.dim, out.every);
        complete.clear();
        for (index, sequence) in batch.sequences().iter().enumerate() {
            let end = sequence.end();
            let rows = sequence.position / every..end / every;
            complete.extend(rows.map(|number| (index, number)));
        }
        if !complete.is_empty() {
            let sources = Sources {
                values: kv.plain(layer, spec.values),
                gates: spec
                    .gates
                    .map(|(gates, bias)| (kv.plain(layer, gates), &core.vectors[bias.0][..])),
                dim,
                every,
                overlap: spec.overlap,
            };
            let pooled = grown(pooled, complete.len() * dim);
            core.pool.for_each_tile(pooled, dim, (1, dim), |mut tile| {
                let at = tile.rows().start;
                let (index, number) = complete[at];
                let table = batch.block_table(&batch.sequences()[index], sources.values.group);
                let row = tile.row_mut(at);
                sources.pool(core.isa, number, table, row);
                finish_row(core, ropes, spec, number * every, row);
                round(core.isa, kv.plain(layer, spec.out).plain.rounding, row);
            });
        }
        let group = kv.plain(layer, spec.out).group;
        let rows = pooled.chunks_exact(dim);
        for ((index, number), row) in complete.iter().zip(rows) {
            let table = batch.block_table(&batch.sequences()[*index], group);
            kv.store_one((layer, spec.out), (*number, table), row);
        }
    }
}

/// Normalises a pooled row and rotates a part of it by `position`, where it has a norm and is
/// rotated.
fn finish_row(core: &CpuCore, ropes: &Ropes, spec: &Compression, position: usize, row: &mut [f32]) {
    if let Some((weights, eps)) = spec.norm {
        scratch(row.len(), |normed| {
            elementwise::rms_norm(core.isa, row, &core.vectors[weights.0], eps, normed);
            row.copy_from_slice(normed);
        });
    }
    let Some((rope, first)) = spec.rope else { return };
    let RopeTable { frequencies, magnitude, pairs, .. } = ropes.table(rope);
    let pairs_of_row = frequencies.len();
    scratch(2 * pairs_of_row, |angles| {
        let (cos, sin) = angles.split_at_mut(pairs_of_row);
        rope::angles(position as u32, frequencies, magnitude.at(position as u32), cos, sin);
        let rotated = 2 * pairs_of_row;
        rope::rotate(core.isa, &mut row[first..][..rotated], rotated, *pairs, cos, sin);
    });
}
