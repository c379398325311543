//! Sums of register tiles and the outputs that they are parts of.

use super::GROUP;
use base::Tile;

/// The outputs that the groups in `places` have so far, of rows from `row` on.
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
            let out = &out[place * GROUP..];
            let kept = GROUP.min(out.len());
            sums[..kept].copy_from_slice(&out[..kept]);
        }
    }
}

/// Writes sums to these outputs; those beyond the tile are dropped.
#[inline(always)]
pub(super) fn put_sums<const N: usize, const M: usize>(
    tile: &mut Tile<'_, f32>,
    row: usize,
    places: [usize; N],
    sums: &[[[f32; GROUP]; N]; M],
) {
    for (m, sums) in sums.iter().enumerate() {
        let out = tile.row_mut(row + m);
        for (sums, place) in sums.iter().zip(places) {
            let out = &mut out[place * GROUP..];
            let kept = GROUP.min(out.len());
            out[..kept].copy_from_slice(&sums[..kept]);
        }
    }
}
