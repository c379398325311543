//! The groups of a tile, and the sums of register tiles that are parts of its outputs.

use super::panels::runs;
use crate::layout::operands::{GROUP, Weights};
use base::Tile;
use std::ops::Range;

/// Bytes of weights that stay in a core's cache while the panels of many rows pass over them.
const HELD: usize = 256 << 10;

/// Most groups of these weights.
pub(super) const HELD_GROUPS: usize = 32;

/// Runs of `count` groups of `stride` bytes that are held together, in multiples of `together`;
/// the last is at most as long as [`HELD_GROUPS`].
#[inline(always)]
pub(super) fn held_groups(
    count: usize,
    stride: usize,
    together: usize,
) -> impl Iterator<Item = Range<usize>> {
    runs(count, together, (HELD / stride).min(HELD_GROUPS + 1 - together))
}

/// The groups of weights of a tile's columns.
pub(super) struct Groups {
    first: *const u8,
    stride: usize,
    /// Number of groups.
    pub count: usize,
}

impl Groups {
    /// The groups of `stride` bytes that the columns of `tile` begin with and those behind.
    #[inline(always)]
    pub fn new(weights: &Weights<'_>, stride: usize, tile: &Tile<'_, f32>) -> Self {
        let cols = tile.cols();
        let first = weights.bytes[cols.start / GROUP * stride..].as_ptr();
        Self { first, stride, count: cols.len().div_ceil(GROUP) }
    }

    /// Bytes of a group.
    #[inline(always)]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The bytes of a group; past the end those of the last.
    #[inline(always)]
    pub fn bytes(&self, place: usize) -> *const u8 {
        self.first.wrapping_add(place.min(self.count - 1) * self.stride)
    }
}

/// The outputs that the groups in `places` have so far, of rows from `row` on. Those beyond the
/// tile do not exist, here and in [`put_sums`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn take_sums<const N: usize, const M: usize>(
    tile: &mut Tile<'_, f32>,
    row: usize,
    places: [usize; N],
    sums: &mut [[[f32; GROUP]; N]; M],
) {
    for (m, sums) in sums.iter_mut().enumerate() {
        let out = tile.row_mut(row + m);
        for (sums, place) in sums.iter_mut().zip(places) {
            let out = out.get(place * GROUP..).unwrap_or_default();
            let kept = GROUP.min(out.len());
            sums[..kept].copy_from_slice(&out[..kept]);
        }
    }
}

/// Writes sums to the outputs of the groups in `places`, of rows from `row` on: those of a row one
/// after the other, row by row.
#[inline(always)]
pub(super) fn put_sums(
    tile: &mut Tile<'_, f32>,
    row: usize,
    places: &[usize],
    sums: &[[f32; GROUP]],
) {
    for (m, sums) in sums.chunks_exact(places.len()).enumerate() {
        let outputs = tile.row_mut(row + m);
        for (sums, place) in sums.iter().zip(places) {
            let outputs = outputs.get_mut(place * GROUP..).unwrap_or_default();
            match outputs.first_chunk_mut() {
                Some(all) => *all = *sums,
                None => outputs.copy_from_slice(&sums[..outputs.len()]),
            }
        }
    }
}
