//! Workspaces of the CPU, and operations that compute each row of one.

use super::{Cpu, SERIAL_VALUES};
use crate::Buffer;
use base::AlignedVec;
use std::ops::Range;

/// Rows of f32 values.
pub(super) struct Workspace {
    pub width: usize,
    pub data: AlignedVec<f32>,
}

impl Cpu {
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
