//! Workspaces of the CPU, and operations that compute each row of one.

use super::ops::{products::scratch, sparse};
use super::{Cpu, SERIAL_VALUES, kv};
use crate::{Buffer, CacheSpec, Memory};
use base::AlignedVec;
use kernels::kv::STATE_TILE;
use std::ops::Range;

/// Rows of f32 values.
pub(super) struct Workspace {
    pub width: usize,
    pub data: AlignedVec<f32>,
}

impl Cpu {
    /// Bytes of weights, workspace and KV cache.
    pub(super) fn memory_in_use(&self) -> Memory {
        Memory {
            weights: self.weight_bytes(),
            workspace: self.buffers.iter().map(|b| 4 * b.data.len()).sum::<usize>()
                + self.ropes.iter().map(|r| 8 * r.cos.len()).sum::<usize>()
                + self.rounded.bytes()
                + self.expert_scratch.bytes()
                + self.low_rank.bytes()
                + self.attention.bytes()
                + self.compressed.bytes()
                + self.selection_bytes(),
            cache: self.kv.bytes(),
            states: self.states.bytes(),
        }
    }

    /// Makes the memory that operations on rows of a cache need, so that steps allocate nothing.
    pub(super) fn warm_up(&mut self, spec: &CacheSpec<'_>) {
        if let Some((most, dim)) = kv::largest_plain(spec) {
            self.pool.run(&|_| sparse::warm_up(most, dim));
        }
        let states = spec.layers.iter().filter_map(|layer| layer.state);
        if let Some(tile) = states.map(|state| state.tile()).max() {
            let outputs = (1 + spec.guesses) * STATE_TILE;
            self.pool.run(&|_| scratch(tile + outputs, |_| ()));
        }
        let compressed = spec.layers.iter().flat_map(|layer| &layer.rows);
        let dim = compressed.filter(|rows| rows.every > 1).map(|rows| rows.dim).max();
        let rows = self.buffers.iter().map(|buffer| buffer.data.len() / buffer.width.max(1)).max();
        if let (Some(dim), Some(rows)) = (dim, rows) {
            self.compressed.reserve(rows, dim);
        }
    }

    /// Lends out a buffer so that others can be read meanwhile; `put` returns it.
    pub(super) fn take(&mut self, buffer: Buffer) -> AlignedVec<f32> {
        std::mem::take(&mut self.buffers[buffer.0].data)
    }

    pub(super) fn put(&mut self, buffer: Buffer, data: AlignedVec<f32>) {
        self.buffers[buffer.0].data = data;
    }

    pub(super) fn width(&self, buffer: Buffer) -> usize {
        self.buffers[buffer.0].width
    }

    /// Calls `f(row index, row)` for each of the first `rows` rows of `out`, as `operation`.
    pub(super) fn each_row(
        &mut self,
        operation: &str,
        (out, rows): (Buffer, usize),
        f: impl Fn(&Self, usize, &mut [f32]) + Sync,
    ) where
        Self: Sync,
    {
        self.pool.begin(operation);
        let width = self.width(out);
        let mut data = self.take(out);
        let used = &mut data[..rows * width];
        if rows == 1 || used.len() < SERIAL_VALUES {
            for (row, values) in used.chunks_exact_mut(width).enumerate() {
                f(self, row, values);
            }
        } else {
            self.pool.for_each_tile(used, width, (4, width), |mut tile| {
                for row in tile.rows() {
                    f(self, row, tile.row_mut(row));
                }
            });
        }
        self.put(out, data);
    }

    /// Rows of a buffer that is not taken.
    pub(super) fn read_rows(&self, buffer: Buffer, rows: Range<usize>) -> &[f32] {
        let Workspace { width, data } = &self.buffers[buffer.0];
        &data[rows.start * width..rows.end * width]
    }

    /// Row `row` of a buffer that is not taken.
    pub(super) fn row(&self, buffer: Buffer, row: usize) -> &[f32] {
        let Workspace { width, data } = &self.buffers[buffer.0];
        &data[row * width..][..*width]
    }
}
