//! What every operation of the CPU computes with: threads, workspaces and vectors.

use crate::handles::Buffer;
use base::{AlignedVec, ThreadPool};
use kernels::Isa;
use std::ops::Range;

/// Rows times width below which an operation is not worth handing to other threads.
pub(super) const SERIAL_VALUES: usize = 16 * 1024;

/// Threads, workspaces and vectors.
pub(super) struct CpuCore {
    pub isa: Isa,
    pub pool: ThreadPool,
    pub buffers: Vec<Workspace>,
    pub vectors: Vec<Vec<f32>>,
}

/// Rows of f32 values.
pub(super) struct Workspace {
    pub width: usize,
    pub data: AlignedVec<f32>,
}

impl CpuCore {
    /// Lends out a buffer so that others can be read meanwhile; `put` returns it.
    pub fn take(&mut self, buffer: Buffer) -> AlignedVec<f32> {
        std::mem::take(&mut self.buffers[buffer.0].data)
    }

    pub fn put(&mut self, buffer: Buffer, data: AlignedVec<f32>) {
        self.buffers[buffer.0].data = data;
    }

    pub fn width(&self, buffer: Buffer) -> usize {
        self.buffers[buffer.0].width
    }

    /// Calls `f(core, row index, row)` for each of the first `rows` rows of `out`, as `operation`.
    pub fn each_row(
        &mut self,
        operation: &str,
        (out, rows): (Buffer, usize),
        f: impl Fn(&Self, usize, &mut [f32]) + Sync,
    ) {
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
    pub fn read_rows(&self, buffer: Buffer, rows: Range<usize>) -> &[f32] {
        let Workspace { width, data } = &self.buffers[buffer.0];
        &data[rows.start * width..rows.end * width]
    }

    /// Row `row` of a buffer that is not taken.
    pub fn row(&self, buffer: Buffer, row: usize) -> &[f32] {
        let Workspace { width, data } = &self.buffers[buffer.0];
        &data[row * width..][..*width]
    }
}
