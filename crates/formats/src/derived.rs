//! Matrix bytes that are computed row by row from other bytes when they are read.
//!
//! Invariant: values are only reordered, never rounded, except those of [`Computed`]. Sources are
//! checked before anything is read.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::{Bytes, Storage};
use kernels::quant::Dequantize;

/// How rows are computed.
pub(crate) trait RowSource: Send + Sync {
    /// Overwrites `out` with the bytes of `rows`.
    fn fill(&self, rows: Range<usize>, out: &mut [u8]);
    /// The large sources that rows are computed from.
    fn sources(&self) -> Vec<Storage>;
}

/// The bytes of `count` rows.
pub(crate) struct Derived<R> {
    rows: R,
    count: usize,
    row_bytes: usize,
    /// Whether the sources are read sequentially: each row needs an equal, consecutive share of
    /// each source. Otherwise they are read at random.
    in_order: bool,
    /// Number of rows that were read and are no longer needed.
    done: AtomicUsize,
}

impl<R: RowSource> Derived<R> {
    /// Rows that each need an equal, consecutive share of the sources.
    pub fn by_row(rows: R, count: usize, row_bytes: usize) -> Self {
        Self { rows, count, row_bytes, in_order: true, done: AtomicUsize::new(0) }
    }

    /// Rows that need bytes from all parts of the sources.
    pub fn across(rows: R, count: usize, row_bytes: usize) -> Self {
        Self { in_order: false, ..Self::by_row(rows, count, row_bytes) }
    }

    /// The rows that `range` touches.
    fn touched(&self, range: &Range<usize>) -> Range<usize> {
        let bytes = self.row_bytes.max(1);
        range.start / bytes..range.end.div_ceil(bytes)
    }

    /// Calls `hint` with the share of `rows` of every source.
    fn hint(&self, rows: Range<usize>, hint: impl Fn(&dyn Bytes, Range<usize>)) {
        for source in self.rows.sources() {
            let row = source.len() / self.count.max(1);
            hint(&*source, rows.start * row..rows.end * row);
        }
    }
}

impl<R: RowSource> Bytes for Derived<R> {
    fn len(&self) -> usize {
        self.count * self.row_bytes
    }

    fn read(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        assert!(range.start <= range.end && range.end <= self.len(), "a range inside");
        if range.is_empty() {
            return Cow::Borrowed(&[]);
        }
        let rows = self.touched(&range);
        let first = rows.start * self.row_bytes;
        let mut bytes = vec![0; rows.len() * self.row_bytes];
        self.rows.fill(rows, &mut bytes);
        bytes.truncate(range.end - first);
        bytes.drain(..range.start - first);
        Cow::Owned(bytes)
    }

    fn are_here(&self) -> bool {
        self.rows.sources().iter().all(|source| source.are_here())
    }

    fn will_need(&self, range: Range<usize>) {
        if self.in_order {
            self.hint(self.touched(&range), |of, part| of.will_need(part));
        } else if range.start == 0 {
            self.hint(0..self.count, |of, part| of.will_need(part));
        }
    }

    fn not_needed(&self, range: Range<usize>) {
        let rows = self.touched(&range);
        if self.in_order {
            return self.hint(rows, |of, part| of.not_needed(part));
        }
        let done = self.done.fetch_add(rows.len(), Ordering::Relaxed) + rows.len();
        if done >= self.count {
            self.hint(0..self.count, |of, part| of.not_needed(part));
        }
    }
}

/// Some bytes of every row of a matrix.
pub(crate) struct Columns {
    /// Rows of `stride` bytes.
    pub of: Storage,
    pub stride: usize,
    /// Bytes of a row.
    pub range: Range<usize>,
}

impl RowSource for Columns {
    fn fill(&self, rows: Range<usize>, out: &mut [u8]) {
        if self.range.is_empty() {
            return;
        }
        let all = self.of.read(rows.start * self.stride..rows.end * self.stride);
        for (row, out) in all.chunks_exact(self.stride).zip(out.chunks_exact_mut(self.range.len()))
        {
            out.copy_from_slice(&row[self.range.clone()]);
        }
    }

    fn sources(&self) -> Vec<Storage> {
        vec![self.of.clone()]
    }
}

/// Every second row.
pub(crate) struct EverySecond {
    /// Rows of `row_bytes` bytes.
    pub of: Storage,
    pub row_bytes: usize,
    /// The first row taken: 0 or 1.
    pub first: usize,
}

impl RowSource for EverySecond {
    fn fill(&self, rows: Range<usize>, out: &mut [u8]) {
        let all = self.of.read(2 * rows.start * self.row_bytes..2 * rows.end * self.row_bytes);
        let taken = all.chunks_exact(self.row_bytes).skip(self.first).step_by(2);
        for (row, out) in taken.zip(out.chunks_exact_mut(self.row_bytes)) {
            out.copy_from_slice(row);
        }
    }

    fn sources(&self) -> Vec<Storage> {
        vec![self.of.clone()]
    }
}

/// Rows of a matrix in another order.
pub(crate) struct Gathered {
    of: Storage,
    row_bytes: usize,
    /// Consecutive rows of the source, each with the number of rows up to its end.
    runs: Vec<(Range<usize>, usize)>,
}

impl Gathered {
    /// The rows of `runs`, one run after the other.
    ///
    /// # Panics
    /// If the source lacks a row.
    pub fn new(of: Storage, row_bytes: usize, runs: impl Iterator<Item = Range<usize>>) -> Self {
        let mut end = 0;
        let runs = runs.map(|run| {
            assert!(run.start <= run.end && run.end * row_bytes <= of.len(), "rows of the source");
            end += run.len();
            (run, end)
        });
        let runs = runs.collect();
        Self { of, row_bytes, runs }
    }

    /// Number of rows.
    pub fn count(&self) -> usize {
        self.runs.last().map_or(0, |(_, end)| *end)
    }

    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }
}

impl RowSource for Gathered {
    fn fill(&self, rows: Range<usize>, mut out: &mut [u8]) {
        let first = self.runs.partition_point(|(_, end)| *end <= rows.start);
        for (run, end) in &self.runs[first..] {
            let before = end - run.len();
            if before >= rows.end {
                break;
            }
            let start = run.start + rows.start.saturating_sub(before);
            let until = run.end - end.saturating_sub(rows.end);
            let bytes = self.of.read(start * self.row_bytes..until * self.row_bytes);
            let (filled, rest) = std::mem::take(&mut out).split_at_mut(bytes.len());
            filled.copy_from_slice(&bytes);
            out = rest;
        }
    }

    fn sources(&self) -> Vec<Storage> {
        vec![self.of.clone()]
    }
}

/// A vector of values of type f32 that are computed from other values, as one row.
pub(crate) struct Computed {
    pub of: Storage,
    /// Number of values.
    pub values: usize,
    pub read: Dequantize,
    pub compute: fn(f32) -> f32,
}

impl RowSource for Computed {
    fn fill(&self, _: Range<usize>, out: &mut [u8]) {
        let mut values = vec![0.0; self.values];
        (self.read)(&self.of.read(0..self.of.len()), &mut values);
        for (out, value) in out.chunks_exact_mut(size_of::<f32>()).zip(values) {
            out.copy_from_slice(&(self.compute)(value).to_le_bytes());
        }
    }

    fn sources(&self) -> Vec<Storage> {
        vec![self.of.clone()]
    }
}

/// The transpose of a matrix of single values.
pub(crate) struct Transposed {
    /// `[cols, rows]` values of `size` bytes.
    pub of: Storage,
    pub size: usize,
    /// Rows of the transposed matrix.
    pub rows: usize,
    /// Columns of the transposed matrix.
    pub cols: usize,
}

impl RowSource for Transposed {
    fn fill(&self, rows: Range<usize>, out: &mut [u8]) {
        for col in 0..self.cols {
            let first = col * self.rows;
            let part =
                self.of.read((first + rows.start) * self.size..(first + rows.end) * self.size);
            for (row, value) in part.chunks_exact(self.size).enumerate() {
                out[(row * self.cols + col) * self.size..][..self.size].copy_from_slice(value);
            }
        }
    }

    fn sources(&self) -> Vec<Storage> {
        vec![self.of.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn check<R: RowSource>(rows: R, count: usize, row_bytes: usize, expected: &[u8]) {
        let derived = Derived::across(rows, count, row_bytes);
        assert_eq!(derived.len(), expected.len());
        for start in 0..=expected.len() {
            for end in start..=expected.len() {
                assert_eq!(*derived.read(start..end), expected[start..end], "{start}..{end}");
            }
        }
    }

    #[test]
    fn any_range_reads_as_one_copy_would() {
        let of: Storage = Arc::new((0..24).collect::<Vec<u8>>());
        let columns = Columns { of: of.clone(), stride: 6, range: 2..4 };
        check(columns, 4, 2, &[2, 3, 8, 9, 14, 15, 20, 21]);
        let second = EverySecond { of: of.clone(), row_bytes: 3, first: 1 };
        check(second, 4, 3, &[3, 4, 5, 9, 10, 11, 15, 16, 17, 21, 22, 23]);
        let gathered = Gathered::new(of.clone(), 3, [6..8, 1..2, 4..4, 2..4].into_iter());
        check(gathered, 5, 3, &[18, 19, 20, 21, 22, 23, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        let transposed = Transposed { of, size: 2, rows: 3, cols: 4 };
        let rows = [0, 1, 6, 7, 12, 13, 18, 19, 2, 3, 8, 9, 14, 15, 20, 21, 4, 5, 10, 11, 16, 17];
        check(transposed, 3, 8, &[&rows[..], &[22, 23]].concat());
    }
}
