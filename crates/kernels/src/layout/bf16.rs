//! Products of BF16 weights with activations rounded to BF16, where the CPU has dot products of
//! such pairs.
//!
//! Weights are packed when a model is loaded: sixteen rows side by side, a word of two
//! consecutive inputs of each, so that one load feeds sixteen sums. Activations lie in panels
//! (see `panels`): the words of a panel's rows side by side.
//!
//! One order for every output element: pairs of inputs are added to one f32 sum in ascending
//! order, each as `vdpbf16ps` does (both products and sums rounded to nearest even, denormals as
//! zero). How many rows are computed together never matters. Where the CPU has tile registers the
//! order is theirs (see `amx`).
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;

use crate::lanes::isa_dispatch;
use crate::lanes::transpose::Transpose;
use crate::layout::panels::panels;
use crate::{Isa, elementwise};
use base::Tile;

/// Weight rows side by side in a group.
pub const GROUP: usize = 16;
/// Most activation rows of a panel, where the products are not in tiles.
pub(crate) const PANEL: usize = 8;

/// Most activation rows of a panel.
pub fn panel_rows(isa: Isa) -> usize {
    if isa.has_tiles() { 1 } else { PANEL }
}

/// BF16 weights `[rows, cols]`, packed by [`pack`].
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    /// Outputs of the product.
    pub rows: usize,
    /// Inputs of the product.
    pub cols: usize,
    /// `packed_bytes(rows, cols)` bytes.
    pub bytes: &'a [u8],
}

/// Activations `[rows, cols]`, as [`round`] wrote them.
#[derive(Clone, Copy, Debug)]
pub struct Activations<'a> {
    /// `words(rows, cols)` words.
    pub words: &'a [u32],
    /// Rows.
    pub rows: usize,
    /// Values of a row.
    pub cols: usize,
}

/// Words that `rows` rows of `cols` activations take.
pub fn words(rows: usize, cols: usize) -> usize {
    rows * cols.div_ceil(2)
}

/// Bytes that `rows` rows of `cols` weights take.
pub fn packed_bytes(rows: usize, cols: usize) -> usize {
    rows.div_ceil(GROUP) * group_bytes(cols)
}

fn group_bytes(cols: usize) -> usize {
    cols.div_ceil(2) * 4 * GROUP
}

isa_dispatch! {
    /// Packs sixteen rows of `cols` values, or as many as are left, into one group: `rows` holds
    /// their bytes as the file has them, `group` is overwritten.
    pub fn pack(cols: usize, rows: &[u8], group: &mut [u8]) = pack_body
}

#[inline(always)]
fn pack_body<L: Transpose>(cols: usize, rows: &[u8], group: &mut [u8]) {
    assert!(cols > 0 && rows.len().is_multiple_of(2 * cols), "whole rows");
    assert!(rows.len() <= 2 * cols * GROUP && group.len() == group_bytes(cols), "a group");
    let words = group.as_chunks_mut::<{ 4 * GROUP }>().0;
    if rows.len() < 2 * cols * GROUP {
        words.fill([0; 4 * GROUP]);
        return pack_pairs(cols, rows, 0, words);
    }
    let (squares, _) = words.as_chunks_mut::<GROUP>();
    let whole = cols / (2 * GROUP) * GROUP;
    for (index, square) in squares[..whole / GROUP].iter_mut().enumerate() {
        let row = |i: usize| rows[2 * cols * i + 4 * GROUP * index..].first_chunk();
        L::transpose(std::array::from_fn(|i| row(i).expect("whole rows")), square);
    }
    pack_pairs(cols, rows, whole, &mut words[whole..]);
}

/// The pairs of all rows from pair `first` on, one by one.
fn pack_pairs(cols: usize, rows: &[u8], first: usize, words: &mut [[u8; 4 * GROUP]]) {
    for (row, bytes) in rows.chunks_exact(2 * cols).enumerate() {
        let pairs = bytes[4 * first..].chunks(4);
        for (word, pair) in words.iter_mut().zip(pairs) {
            let mut whole = [0; 4];
            whole[..pair.len()].copy_from_slice(pair);
            word[4 * row..][..4].copy_from_slice(&whole);
        }
    }
}

/// Values that are rounded at a time; even.
const PIECE: usize = 256;

/// Rounds rows of `cols` values to BF16, in whole panels: `x` holds all rows, or those from a
/// multiple of [`panel_rows`] on.
pub fn round(isa: Isa, x: &[f32], cols: usize, out: &mut [u32]) {
    assert!(cols > 0 && x.len().is_multiple_of(cols), "whole rows");
    assert_eq!(out.len(), words(x.len() / cols, cols), "words for the rows");
    let row_words = words(1, cols);
    for (start, width) in panels(x.len() / cols, panel_rows(isa)) {
        let panel = &mut out[start * row_words..][..width * row_words];
        for i in 0..width {
            let row = &x[(start + i) * cols..][..cols];
            for (piece, values) in row.chunks(PIECE).enumerate() {
                let mut rounded = [0; PIECE];
                elementwise::to_bf16(isa, values, &mut rounded[..values.len()]);
                let slots = panel[piece * PIECE / 2 * width + i..].iter_mut().step_by(width);
                for (slot, [low, high]) in slots.zip(rounded.as_chunks::<2>().0) {
                    *slot = u32::from(*low) | u32::from(*high) << 16;
                }
            }
        }
    }
}

/// Computes the outputs of `tile`, whose columns are weight rows and whose rows are all rows of
/// `input`. The tile's first column is a multiple of [`GROUP`].
///
/// # Panics
/// Without [`Isa::has_bf16_dot`], or if the shapes do not fit.
pub fn matmul(isa: Isa, input: Activations<'_>, weights: Packed<'_>, tile: &mut Tile<'_, f32>) {
    let Packed { rows, cols, bytes } = weights;
    assert!(isa.has_bf16_dot(), "no BF16 dot product on {isa:?}");
    assert_eq!(cols, input.cols, "inputs of the product");
    assert_eq!(bytes.len(), packed_bytes(rows, cols), "bytes of the weights");
    assert_eq!(input.words.len(), words(input.rows, cols), "words of the activations");
    assert!(tile.rows() == (0..input.rows), "tiles span all rows");
    assert!(tile.cols().end <= rows && tile.cols().start.is_multiple_of(GROUP), "columns");
    #[cfg(target_arch = "x86_64")]
    if isa.has_tiles() {
        crate::layout::bf16::amx::product(input, weights, tile);
    } else {
        x86::product(input, weights, tile);
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86 {
    use super::{Activations, GROUP, PANEL, Packed, group_bytes, panels, words};
    use crate::isa::features;
    use base::Tile;
    use std::arch::x86_64::*;

    /// Pairs of inputs over which two groups of weights stay in the nearest cache while all rows
    /// pass.
    const RUN: usize = 256;
    /// Words of activations that stay in a core's cache while weights pass over them.
    const CACHED: usize = 64 << 10;

    pub(super) fn product(input: Activations<'_>, weights: Packed<'_>, tile: &mut Tile<'_, f32>) {
        let pairs = words(1, weights.cols);
        let cached = (CACHED / pairs).max(PANEL) / PANEL * PANEL;
        for first in (0..input.rows).step_by(cached) {
            let count = cached.min(input.rows - first);
            match input.rows {
                1 => rows::<4>(input, weights, (first, count), tile),
                _ => rows::<2>(input, weights, (first, count), tile),
            }
        }
    }

    /// All columns of the tile for `count` rows from `first`, the start of a panel.
    fn rows<const N: usize>(
        input: Activations<'_>,
        weights: Packed<'_>,
        (first, count): (usize, usize),
        tile: &mut Tile<'_, f32>,
    ) {
        let pairs = words(1, weights.cols);
        let groups = &weights.bytes[tile.cols().start / GROUP * group_bytes(weights.cols)..];
        let last = tile.cols().len().div_ceil(GROUP) - 1;
        // One row passes once: there is nothing to keep.
        let run = if count == 1 { pairs } else { RUN };
        // Each of the groups that are computed together goes through a part of the tile of its
        // own, from end to end: a long stream of memory.
        let apart = (last + 1).div_ceil(N);
        for group in 0..apart {
            // Past the end the last group is computed again.
            let places = std::array::from_fn::<_, N, _>(|n| (group + n * apart).min(last));
            let at = places.map(|place| groups[place * group_bytes(weights.cols)..].as_ptr());
            for from in (0..pairs).step_by(run) {
                let span = (from, run.min(pairs - from));
                for (start, width) in panels(count, PANEL) {
                    let row = first + start;
                    let x = &input.words[row * pairs..][..width * pairs];
                    match (N, width) {
                        (4, _) => outputs::<N, 1>(x, at, span, (row, places), tile),
                        (_, 8) => outputs::<N, 8>(x, at, span, (row, places), tile),
                        (_, 4) => outputs::<N, 4>(x, at, span, (row, places), tile),
                        (_, 2) => outputs::<N, 2>(x, at, span, (row, places), tile),
                        _ => outputs::<N, 1>(x, at, span, (row, places), tile),
                    }
                }
            }
        }
    }

    /// `M` rows by `N` groups of outputs, for `count` pairs of inputs from pair `from` on.
    fn outputs<const N: usize, const M: usize>(
        x: &[u32],
        groups: [*const u8; N],
        (from, count): (usize, usize),
        (row, places): (usize, [usize; N]),
        tile: &mut Tile<'_, f32>,
    ) {
        let x = x[from * M..][..count * M].as_ptr();
        let mut sums = [[[0.0; GROUP]; N]; M];
        if from > 0 {
            take_sums(tile, row, places, &mut sums);
        }
        let groups = groups.map(|at| at.wrapping_add(from * 4 * GROUP));
        // SAFETY: `matmul` checked that the CPU has the features and the weights all groups of
        // the tile, so `count` words of sixteen rows are readable at each; `x` was sliced.
        unsafe { add::<N, M>(x, groups, count, &mut sums) };
        put_sums(tile, row, places, &sums);
    }

    /// The outputs that the groups in `places` have so far, of rows from `row` on.
    #[inline(always)]
    pub(crate) fn take_sums<const N: usize, const M: usize>(
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
    pub(crate) fn put_sums<const N: usize, const M: usize>(
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

    #[inline(always)]
    pub(crate) fn as_bf16(bits: __m512i) -> __m512bh {
        // SAFETY: both types are 64 bytes of plain bits.
        unsafe { std::mem::transmute::<__m512i, __m512bh>(bits) }
    }

    features! { Avx512Bf16 compiled
        /// Adds `count` pairs of inputs to the sums.
        ///
        /// # Safety
        /// `count * M` words must be readable at `x`, `count` times 64 bytes at each group.
        unsafe fn add<const N: usize, const M: usize>(
            x: *const u32,
            groups: [*const u8; N],
            count: usize,
            sums: &mut [[[f32; GROUP]; N]; M],
        ) {
            let mut acc = [[_mm512_setzero_ps(); N]; M];
            for (acc, sums) in acc.iter_mut().zip(sums.iter()) {
                for (acc, sum) in acc.iter_mut().zip(sums) {
                    // SAFETY: sixteen values.
                    *acc = unsafe { _mm512_loadu_ps(sum.as_ptr()) };
                }
            }
            for pair in 0..count {
                // SAFETY: `pair < count`.
                unsafe {
                    let mut w = [_mm512_setzero_si512(); N];
                    for (w, at) in w.iter_mut().zip(groups) {
                        *w = _mm512_loadu_si512(at.add(pair * 4 * GROUP).cast());
                    }
                    for (m, acc) in acc.iter_mut().enumerate() {
                        let x = _mm512_set1_epi32(*x.add(pair * M + m) as i32);
                        for (acc, w) in acc.iter_mut().zip(w) {
                            *acc = _mm512_dpbf16_ps(*acc, as_bf16(w), as_bf16(x));
                        }
                    }
                }
            }
            for (acc, sums) in acc.iter().zip(sums) {
                for (acc, sum) in acc.iter().zip(sums) {
                    // SAFETY: sixteen values.
                    unsafe { _mm512_storeu_ps(sum.as_mut_ptr(), *acc) };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Rng, ThreadPool};
    use half::bf16;

    fn random(len: usize, seed: u64) -> Vec<f32> {
        let mut rng = Rng::new(seed);
        (0..len).map(|_| bf16::from_f32(rng.normal()).to_f32()).collect()
    }

    fn pack_all(rows: usize, cols: usize, values: &[f32]) -> Vec<u8> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect();
        let mut packed = vec![0xff; packed_bytes(rows, cols)];
        let groups = packed.chunks_exact_mut(group_bytes(cols));
        for (bytes, group) in bytes.chunks(2 * cols * GROUP).zip(groups) {
            pack(Isa::SCALAR, cols, bytes, group);
        }
        packed
    }

    fn product(isa: Isa, x: &[f32], weights: Packed<'_>, columns: usize) -> Vec<f32> {
        let (rows, cols) = (x.len() / weights.cols, weights.cols);
        let mut all = vec![0; words(rows, cols)];
        round(isa, x, cols, &mut all);
        let input = Activations { words: &all, rows, cols };
        let mut out = vec![f32::NAN; rows * weights.rows];
        let tile = (rows, columns);
        ThreadPool::new(1).unwrap().for_each_tile(&mut out, weights.rows, tile, |mut tile| {
            matmul(isa, input, weights, &mut tile);
        });
        out
    }

    fn isas() -> impl Iterator<Item = Isa> {
        Isa::available().into_iter().filter(|isa| isa.has_bf16_dot())
    }

    #[test]
    fn products_agree_with_the_naive_sum() {
        for (m, n, k) in [(1, 5, 1), (3, 17, 33), (7, 40, 96), (11, 35, 1100), (2, 64, 2049)] {
            let (x, w) = (random(m * k, 1), random(n * k, 2));
            let packed = pack_all(n, k, &w);
            for isa in isas() {
                let got = product(isa, &x, Packed { rows: n, cols: k, bytes: &packed }, n);
                for (at, got) in got.iter().enumerate() {
                    let (x, w) = (&x[at / n * k..][..k], &w[at % n * k..][..k]);
                    let want: f64 =
                        x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
                    let tolerance = 1e-6 * k as f64;
                    assert!((f64::from(*got) - want).abs() <= tolerance, "{got} is not {want}");
                }
            }
        }
    }

    #[test]
    fn one_row_alone_has_the_bits_it_has_among_many() {
        let (m, n, k) = (15, 100, 1030);
        let (x, w) = (random(m * k, 3), random(n * k, 4));
        let packed = pack_all(n, k, &w);
        let weights = Packed { rows: n, cols: k, bytes: &packed };
        for isa in isas() {
            let whole = product(isa, &x, weights, 48);
            for (row, want) in x.chunks_exact(k).zip(whole.chunks_exact(n)) {
                assert_eq!(product(isa, row, weights, 64), want);
            }
        }
    }

    #[test]
    fn every_isa_packs_pairs_of_rows_side_by_side() {
        for (rows, cols) in [(16, 1), (16, 31), (16, 64), (16, 103), (5, 64)] {
            let bytes: Vec<u8> = (0..2 * rows * cols).map(|i| (i * 31 % 251) as u8).collect();
            for isa in Isa::available() {
                let mut group = vec![0xff; group_bytes(cols)];
                pack(isa, cols, &bytes, &mut group);
                for (at, found) in group.chunks_exact(2).enumerate() {
                    let (row, col) = (at / 2 % GROUP, at / 2 / GROUP * 2 + at % 2);
                    let there = row < rows && col < cols;
                    let want = if there { &bytes[2 * (row * cols + col)..][..2] } else { &[0; 2] };
                    assert_eq!(found, want, "{isa:?} [{row}, {col}]");
                }
            }
        }
    }

    #[test]
    fn what_is_not_finite_stays_so() {
        let mut x = vec![1.0; 64];
        x[9] = f32::NAN;
        let packed = pack_all(16, 64, &[1.0; 16 * 64]);
        for isa in isas() {
            let got = product(isa, &x, Packed { rows: 16, cols: 64, bytes: &packed }, 16);
            assert!(got.iter().all(|v| v.is_nan()));
        }
    }
}
