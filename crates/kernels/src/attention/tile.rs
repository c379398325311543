//! Products of queries with plain rows: lanes are heads, so that no product has a horizontal sum.
//!
//! A product adds over channels in ascending order, whatever rows and heads share registers.
#![allow(unsafe_code)]

use super::mac::Tiles;
use crate::kv::RowList;
use crate::lanes::{LANES, Lanes};
use base::AlignedVec;
use std::ops::Range;

/// Rows that become f32 at a time; a multiple of the rows of all register tiles.
pub(crate) const TILE: usize = 48;

/// Queries with sixteen heads in lanes: `[group][dim][16 heads]`.
#[derive(Default)]
pub(crate) struct QueryLanes {
    data: AlignedVec<f32>,
    dim: usize,
}

impl QueryLanes {
    /// Makes space for `heads` heads of `dim` values.
    pub fn fit(&mut self, dim: usize, heads: usize) {
        let len = heads.div_ceil(LANES) * LANES * dim;
        if self.data.len() < len {
            self.data = AlignedVec::zeroed(len);
        }
        self.dim = dim;
    }

    /// Turns the queries `q`, `[heads, dim]`; heads that are missing in the last group are zeros.
    #[inline(always)]
    pub fn pack(&mut self, q: &[f32]) {
        let dim = self.dim;
        let groups = self.data.chunks_exact_mut(dim * LANES);
        for (q, to) in q.chunks(LANES * dim).zip(groups) {
            if q.len() < LANES * dim {
                to.fill(0.0);
            }
            for (lane, head) in q.chunks_exact(dim).enumerate() {
                for (to, value) in to.as_chunks_mut::<LANES>().0.iter_mut().zip(head) {
                    to[lane] = *value;
                }
            }
        }
    }
}

/// Some rows in f32.
#[derive(Default)]
pub(crate) struct RowTile {
    data: AlignedVec<f32>,
    dim: usize,
    stride: usize,
}

impl RowTile {
    /// Makes space for [`TILE`] rows of `dim` values.
    pub fn fit(&mut self, dim: usize) {
        self.dim = dim;
        // Not a power of two, because rows would compete for the same lines of the L1 cache.
        self.stride = dim.next_multiple_of(LANES) + LANES;
        if self.data.len() < TILE * self.stride {
            self.data = AlignedVec::zeroed(TILE * self.stride);
        }
    }

    /// Values of a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Values from one row to the next, more than those of a row in whole sixteens.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Loads entries `entries` of the lists, the second of which follows the first.
    #[inline(always)]
    pub fn load<L: Tiles>(&mut self, lists: [RowList<'_>; 2], entries: Range<usize>) {
        let before = lists[0].len();
        assert!(entries.len() <= TILE, "rows of a tile");
        for (entry, to) in entries.zip(self.data.chunks_exact_mut(self.stride)) {
            let (list, index) = match entry.checked_sub(before) {
                None => (lists[0], entry),
                Some(index) => (lists[1], index),
            };
            list.rows.load_on::<L>(list.row(index), &mut to[..self.dim]);
        }
    }

    /// The first `rows` rows.
    #[inline(always)]
    pub fn rows(&self, rows: usize) -> &[f32] {
        &self.data[..rows * self.stride]
    }
}

/// What to do with the products of some rows and some groups of heads.
pub(crate) trait UseProducts<L> {
    /// Products of the rows from `row` on with the groups from `group` on. `#[inline(always)]`.
    fn tile<const R: usize, const G: usize>(&mut self, row: usize, group: usize);
}

/// Calls `then` for register tiles of all `rows` rows and `groups` groups; groups ascend.
#[inline(always)]
pub(crate) fn each_tile<L: Tiles>(rows: usize, groups: usize, then: &mut impl UseProducts<L>) {
    let mut group = 0;
    while group < groups {
        let both = L::WIDE && group + 2 <= groups;
        let mut row = 0;
        while row < rows {
            row += match (both, rows - row) {
                (true, 12..) => call::<L, 12, 2>(then, row, group),
                (true, 4..) => call::<L, 4, 2>(then, row, group),
                (true, _) => call::<L, 1, 2>(then, row, group),
                (false, 12..) if L::WIDE => call::<L, 12, 1>(then, row, group),
                (false, 6..) => call::<L, 6, 1>(then, row, group),
                (false, 2..) => call::<L, 2, 1>(then, row, group),
                (false, _) => call::<L, 1, 1>(then, row, group),
            };
        }
        group += if both { 2 } else { 1 };
    }
}

#[inline(always)]
fn call<L, const R: usize, const G: usize>(
    then: &mut impl UseProducts<L>,
    row: usize,
    group: usize,
) -> usize {
    then.tile::<R, G>(row, group);
    R
}

/// Products of `R` rows of the tile from `row` on with `G` groups of heads from `group` on, over
/// some channels.
#[inline(always)]
pub(crate) fn products<L: Lanes, const R: usize, const G: usize>(
    queries: &QueryLanes,
    tile: &RowTile,
    (row, group): (usize, usize),
    channels: Range<usize>,
) -> [[L; G]; R] {
    let (dim, stride) = (queries.dim, tile.stride);
    assert!(channels.end <= dim && dim <= stride, "channels of a row");
    let queries = queries.data[group * dim * LANES..][..G * dim * LANES].as_ptr();
    let rows = tile.data[row * stride..][..R * stride].as_ptr();
    let mut acc = [[L::splat(0.0); G]; R];
    for d in channels {
        // SAFETY: `queries` has `G` groups of `dim` sixteens, `rows` has `R` rows of `stride`
        // values, checked by the slices, and `d < dim <= stride`.
        unsafe {
            let q: [L; G] = load_each(queries.add(d * LANES), dim * LANES);
            for (r, acc) in acc.iter_mut().enumerate() {
                let value = L::splat(*rows.add(r * stride + d));
                for (acc, q) in acc.iter_mut().zip(q) {
                    *acc = value.mul_add(q, *acc);
                }
            }
        }
    }
    acc
}

/// `N` groups of lanes, `apart` values from one to the next.
///
/// # Safety
/// Sixteen values must be readable at each.
#[inline(always)]
pub(super) unsafe fn load_each<L: Lanes, const N: usize>(at: *const f32, apart: usize) -> [L; N] {
    // SAFETY: the caller's promise.
    let mut all = [unsafe { L::load_at(at) }; N];
    let mut i = 1;
    // Iterators that skip the first are not inlined.
    while i < N {
        // SAFETY: the caller's promise.
        all[i] = unsafe { L::load_at(at.add(i * apart)) };
        i += 1;
    }
    all
}
