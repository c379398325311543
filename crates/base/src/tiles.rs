//! Matrices cut into disjoint tiles, one of which a thread computes at a time.
#![allow(unsafe_code)]

use crate::pool::ThreadPool;
use std::marker::PhantomData;
use std::ops::Range;

impl ThreadPool {
    /// Cuts the matrix `data` (`data.len() / width` rows of `width` values) into tiles of
    /// `tile_rows` by `tile_cols` and calls `f` with each, on any thread. Tiles of one column
    /// range follow each other.
    pub fn for_each_tile<T: Send>(
        &self,
        data: &mut [T],
        width: usize,
        (tile_rows, tile_cols): (usize, usize),
        f: impl Fn(Tile<'_, T>) + Sync,
    ) {
        assert!(tile_rows > 0, "empty tiles");
        let matrix = Matrix::new(data, width);
        let down = matrix.rows.div_ceil(tile_rows);
        self.for_each(down * width.div_ceil(tile_cols), |index| {
            let (row, col) = (index % down * tile_rows, index / down * tile_cols);
            // SAFETY: every index is another tile, and each is visited once.
            f(unsafe {
                matrix.tile(row..(row + tile_rows).min(matrix.rows), col..col + tile_cols)
            });
        });
    }

    /// Cuts several matrices (data, width, and columns of a tile) into tiles of all rows and calls
    /// `f` with the index of a matrix and a tile of it, on any thread, as one shared job.
    pub fn for_each_tile_of<T: Send>(
        &self,
        matrices: &mut [(&mut [T], usize, usize)],
        f: impl Fn(usize, Tile<'_, T>) + Sync,
    ) {
        assert!(matrices.len() <= MAX_MATRICES, "too many matrices at once");
        let mut all: [_; MAX_MATRICES] = std::array::from_fn(|_| None);
        let mut counts = [0; MAX_MATRICES];
        for ((slot, count), (data, width, cols)) in all.iter_mut().zip(&mut counts).zip(matrices) {
            *count = width.div_ceil(*cols);
            *slot = Some((Matrix::new(data, *width), *cols, *count));
        }
        self.for_each_of(&counts, |mut index| {
            for (at, (matrix, cols, pieces)) in all.iter().flatten().enumerate() {
                if index < *pieces {
                    // SAFETY: every index is another tile, and each is visited once.
                    return f(at, unsafe {
                        matrix.tile(0..matrix.rows, index * cols..(index + 1) * cols)
                    });
                }
                index -= pieces;
            }
        });
    }

    /// As [`ThreadPool::for_each_tile`], of columns `cols` only, in tiles of all rows.
    pub fn for_each_strip<T: Send>(
        &self,
        data: &mut [T],
        width: usize,
        (cols, tile_cols): (Range<usize>, usize),
        f: impl Fn(Tile<'_, T>) + Sync,
    ) {
        assert!(cols.end <= width, "columns that there are");
        let matrix = Matrix::new(data, width);
        self.for_each(cols.len().div_ceil(tile_cols), |index| {
            let first = cols.start + index * tile_cols;
            let count = tile_cols.min(cols.end - first);
            // SAFETY: every index is another tile, and each is visited once.
            f(unsafe { matrix.tile(0..matrix.rows, first..first + count) });
        });
    }

    /// As [`ThreadPool::for_each_tile`], with the rows of tiles given: ascending ranges that do not
    /// overlap. `f` also gets the index of its range.
    pub fn for_each_cut<T: Send>(
        &self,
        data: &mut [T],
        width: usize,
        (cuts, tile_cols): (&[Range<usize>], usize),
        f: impl Fn(usize, Tile<'_, T>) + Sync,
    ) {
        let matrix = Matrix::new(data, width);
        assert!(cuts.iter().all(|cut| cut.start <= cut.end), "ranges");
        assert!(cuts.windows(2).all(|pair| pair[0].end <= pair[1].start), "ranges that ascend");
        assert!(cuts.last().is_none_or(|last| last.end <= matrix.rows), "rows that there are");
        self.for_each(cuts.len() * width.div_ceil(tile_cols), |index| {
            let (cut, col) = (index % cuts.len(), index / cuts.len() * tile_cols);
            // SAFETY: every index is another tile, of rows that are no other range's, and each is
            // visited once.
            f(cut, unsafe { matrix.tile(cuts[cut].clone(), col..col + tile_cols) });
        });
    }

    /// Cuts two matrices (data, width) into pairs of tiles and calls `f` with the index of a piece
    /// and its two tiles, on any thread. Piece `i` consists of `cuts[i].rows` of the first matrix
    /// and of `cuts[i].row` of the second; its pairs have the next `cols.0` columns of the
    /// first, and the next `cols.1` columns of the second from column `start` on, until the first
    /// has no more.
    pub fn for_each_pair<T: Send>(
        &self,
        (first, first_width): (&mut [T], usize),
        (second, second_width, start): (&mut [T], usize, usize),
        (cuts, cols): (&[PairCut], (usize, usize)),
        f: impl Fn(usize, Tile<'_, T>, Tile<'_, T>) + Sync,
    ) {
        let (first, second) = (Matrix::new(first, first_width), Matrix::new(second, second_width));
        let across = first_width.div_ceil(cols.0);
        assert!(start + across * cols.1 <= second_width, "columns that there are");
        assert!(cuts.iter().all(|cut| cut.rows.start <= cut.rows.end), "ranges");
        let ascend = |pair: &[PairCut]| pair[0].rows.end <= pair[1].rows.start;
        assert!(cuts.windows(2).all(ascend), "ranges that ascend");
        assert!(cuts.last().is_none_or(|last| last.rows.end <= first.rows), "rows that there are");
        let apart = |at: usize| cuts[..at].iter().all(|other| other.row != cuts[at].row);
        assert!((0..cuts.len()).all(|at| cuts[at].row < second.rows && apart(at)), "rows apart");
        self.for_each(cuts.len() * across, |index| {
            let (cut, col) = (index % cuts.len(), index / cuts.len());
            let PairCut { rows, row } = cuts[cut].clone();
            // SAFETY: every index is another pair of tiles, of rows that are no other piece's or of
            // other columns, and each is visited once.
            let pair = unsafe {
                let first = first.tile(rows, col * cols.0..(col + 1) * cols.0);
                let start = start + col * cols.1;
                (first, second.tile(row..row + 1, start..start + cols.1))
            };
            f(cut, pair.0, pair.1);
        });
    }
}

/// The rows of a pair of tiles: of the first matrix, and one of the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairCut {
    /// Rows of the first matrix.
    pub rows: Range<usize>,
    /// Row of the second.
    pub row: usize,
}

/// Most matrices of one [`ThreadPool::for_each_tile_of`].
pub const MAX_MATRICES: usize = 4;

/// A matrix from which threads take disjoint tiles.
struct Matrix<'a, T> {
    base: SendPtr<T>,
    rows: usize,
    width: usize,
    _borrow: PhantomData<&'a mut [SendPtr<T>]>,
}

impl<'a, T: Send> Matrix<'a, T> {
    fn new(data: &'a mut [T], width: usize) -> Self {
        assert!(width > 0, "empty tiles");
        assert!(data.len().is_multiple_of(width), "whole rows only");
        let rows = data.len() / width;
        Self { base: SendPtr(data.as_mut_ptr()), rows, width, _borrow: PhantomData }
    }

    /// The tile of `rows` and of those columns of `cols` that the matrix has.
    ///
    /// # Safety
    /// The rows must exist, and no other tile that is in use may overlap this one.
    unsafe fn tile<'t>(&'t self, rows: Range<usize>, cols: Range<usize>) -> Tile<'t, T> {
        let cols = cols.start..cols.end.min(self.width);
        Tile { base: self.base.get(), width: self.width, rows, cols, _borrow: PhantomData }
    }
}

/// A rectangle of a row-major matrix that no other thread touches.
#[derive(Debug)]
pub struct Tile<'a, T> {
    base: *mut T,
    width: usize,
    rows: Range<usize>,
    cols: Range<usize>,
    _borrow: PhantomData<&'a mut [T]>,
}

impl<'a, T> Tile<'a, T> {
    /// All of the matrix `data`, rows of `width` values.
    pub fn of(data: &'a mut [T], width: usize) -> Self {
        assert!(width > 0 && data.len().is_multiple_of(width), "whole rows only");
        let rows = 0..data.len() / width;
        Self { base: data.as_mut_ptr(), width, rows, cols: 0..width, _borrow: PhantomData }
    }

    /// The same tile, its rows and columns counted from (`row`, `col`) of the matrix.
    pub fn from(self, row: usize, col: usize) -> Self {
        let Self { base, width, rows, cols, _borrow } = self;
        assert!(rows.start >= row && cols.start >= col, "a place before the tile");
        let base = base.wrapping_add(row * width + col);
        let rows = rows.start - row..rows.end - row;
        Self { base, width, rows, cols: cols.start - col..cols.end - col, _borrow }
    }

    /// The same tile as part of a wider matrix, its columns shifted by `col`.
    pub fn behind(self, col: usize) -> Self {
        let Self { base, width, rows, cols, _borrow } = self;
        let base = base.wrapping_sub(col);
        let end = cols.end.checked_add(col).expect("columns that can be counted");
        Self { base, width, rows, cols: cols.start + col..end, _borrow }
    }

    /// Columns `cols` of the tile alone.
    pub fn columns(self, cols: Range<usize>) -> Self {
        let inside = self.cols.start <= cols.start && cols.end <= self.cols.end;
        assert!(inside && cols.start <= cols.end, "columns of the tile");
        Self { cols, ..self }
    }

    /// Columns `cols` of the tile, lent.
    pub fn part(&mut self, cols: Range<usize>) -> Tile<'_, T> {
        let Self { base, width, ref rows, cols: ref all, _borrow } = *self;
        Tile { base, width, rows: rows.clone(), cols: all.clone(), _borrow }.columns(cols)
    }

    /// Rows of the matrix in this tile.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Columns of the matrix in this tile.
    pub fn cols(&self) -> Range<usize> {
        self.cols.clone()
    }

    /// All of a tile that spans all columns of its rows.
    pub fn whole(&mut self) -> &mut [T] {
        assert!(self.cols == (0..self.width), "the tile spans its rows");
        let start = self.base.wrapping_add(self.rows.start * self.width);
        // SAFETY: whole rows lie together; as in `row_mut` otherwise.
        unsafe { std::slice::from_raw_parts_mut(start, self.rows.len() * self.width) }
    }

    /// The part of row `row` (an index of the whole matrix) inside the tile.
    pub fn row_mut(&mut self, row: usize) -> &mut [T] {
        assert!(self.rows.contains(&row), "row outside the tile");
        let start = self.base.wrapping_add(row * self.width + self.cols.start);
        // SAFETY: rows and cols lie inside the matrix, wherever they are counted from, tiles of one
        // matrix are disjoint, and the tile is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start, self.cols.len()) }
    }
}

struct SendPtr<T>(*mut T);

// SAFETY: the pointer is only used to make disjoint tiles, each used by one thread at a time.
unsafe impl<T: Send> Sync for SendPtr<T> {}

impl<T> SendPtr<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}
