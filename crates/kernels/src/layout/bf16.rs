//! Products of BF16 weights with activations rounded to BF16, where the CPU has dot products of
//! such pairs.
//!
//! Weights are packed when a model is loaded: sixteen rows side by side, a word of two
//! consecutive inputs of each, so that one load feeds sixteen sums. Inputs are stored in panels
//! (see `panels`): the words of a panel's rows side by side.
//!
//! One order for every output element: pairs of inputs are added to one f32 sum in ascending
//! order, each as `vdpbf16ps` does (both products and sums rounded to nearest even, denormals as
//! zero). How many rows are computed together never matters. Where the CPU has tile registers the
//! order is theirs (see `amx`).
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
pub(super) mod sizes;

use super::panels::panels;
use crate::elementwise;
use crate::isa::Isa;
use crate::lanes::isa_dispatch;
use crate::lanes::transpose::Transpose;
use crate::layout::descriptor::Layout;
use crate::layout::operands::{Activations, GROUP, Inputs, Weights};
use crate::quant::{BF16, QuantType};
use base::Tile;
use sizes::group_bytes;
pub(super) use sizes::{panel_rows, words};

/// BF16 weights, for products with activations rounded to BF16.
pub(super) static LAYOUT: Layout = Layout {
    name: "bf16",
    activations: Activations::Bf16,
    bytes: |ty, rows, cols| {
        (*ty == BF16).then(|| rows.div_ceil(GROUP).checked_mul(group_bytes(cols)))?
    },
    pack,
    product,
};

isa_dispatch! {
    /// Packs rows of values of 16 bits, as [`Layout::pack`].
    pub(super) fn pack(ty: &QuantType, cols: usize, rows: &[u8], group: &mut [u8]) = pack_body
}

#[inline(always)]
fn pack_body<L: Transpose>(_ty: &QuantType, cols: usize, rows: &[u8], group: &mut [u8]) {
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

/// Rounds rows of `cols` values to BF16, as [`Activations::round`].
pub(super) fn round(isa: Isa, x: &[f32], cols: usize, out: &mut [u32]) {
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

#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
fn product(isa: Isa, inputs: Inputs<'_>, weights: Weights<'_>, tile: &mut Tile<'_, f32>) {
    #[cfg(target_arch = "x86_64")]
    if isa.has_tiles() {
        amx::product(inputs, weights, tile);
    } else {
        x86::product(inputs, weights, tile);
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86 {
    use crate::isa::features;
    use crate::layout::bf16::sizes::{PANEL, group_bytes, words};
    use crate::layout::operands::{GROUP, Inputs, Weights};
    use crate::layout::outputs::{put_sums, take_sums};
    use crate::layout::panels::{panels, runs};
    use base::Tile;
    use std::arch::x86_64::*;
    use std::ops::Range;

    /// Pairs of inputs over which two groups of weights stay in the nearest cache while all rows
    /// pass.
    const RUN: usize = 256;
    /// Words of activations that stay in a core's cache while weights pass over them.
    const CACHED: usize = 64 << 10;

    pub(super) fn product(inputs: Inputs<'_>, weights: Weights<'_>, tile: &mut Tile<'_, f32>) {
        let pairs = words(1, weights.cols);
        for run in runs(inputs.rows, PANEL, CACHED / pairs) {
            match inputs.rows {
                1 => rows::<4>(inputs, weights, (run.start, run.len()), tile),
                _ => rows::<2>(inputs, weights, (run.start, run.len()), tile),
            }
        }
    }

    /// All columns of the tile for `count` rows from `first`, the start of a panel.
    fn rows<const N: usize>(
        inputs: Inputs<'_>,
        weights: Weights<'_>,
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
                let span = from..(from + run).min(pairs);
                for (start, width) in panels(count, PANEL) {
                    let row = first + start;
                    let x = &inputs.words[row * pairs..][..width * pairs];
                    match (N, width) {
                        (4, _) => outputs::<N, 1>(x, at, span.clone(), row, places, tile),
                        (_, 8) => outputs::<N, 8>(x, at, span.clone(), row, places, tile),
                        (_, 6) => outputs::<N, 6>(x, at, span.clone(), row, places, tile),
                        (_, 5) => outputs::<N, 5>(x, at, span.clone(), row, places, tile),
                        (_, 4) => outputs::<N, 4>(x, at, span.clone(), row, places, tile),
                        (_, 3) => outputs::<N, 3>(x, at, span.clone(), row, places, tile),
                        (_, 2) => outputs::<N, 2>(x, at, span.clone(), row, places, tile),
                        _ => outputs::<N, 1>(x, at, span.clone(), row, places, tile),
                    }
                }
            }
        }
    }

    /// Adds some pairs of inputs to `M` rows by `N` groups of outputs.
    fn outputs<const N: usize, const M: usize>(
        x: &[u32],
        groups: [*const u8; N],
        pairs: Range<usize>,
        row: usize,
        places: [usize; N],
        tile: &mut Tile<'_, f32>,
    ) {
        let (from, count) = (pairs.start, pairs.len());
        let x = x[from * M..][..count * M].as_ptr();
        let mut sums = [[[0.0; GROUP]; N]; M];
        if from > 0 {
            take_sums(tile, row, places, &mut sums);
        }
        let groups = groups.map(|at| at.wrapping_add(from * 4 * GROUP));
        // SAFETY: `Layout::product` checked that the CPU has the features and the weights all
        // groups of the tile, so `count` words of sixteen rows are readable at each; `x` was
        // sliced.
        unsafe { add::<N, M>(x, groups, count, &mut sums) };
        put_sums(tile, row, &places, sums.as_flattened());
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
    use crate::layout::tests::{packed_over, product};

    #[test]
    fn every_isa_packs_pairs_of_rows_side_by_side() {
        for (rows, cols) in [(16, 1), (16, 31), (16, 64), (16, 103), (5, 64)] {
            let bytes: Vec<u8> = (0..2 * rows * cols).map(|i| (i * 31 % 251) as u8).collect();
            for isa in Isa::available() {
                let mut group = vec![0xff; group_bytes(cols)];
                LAYOUT.pack(isa, &BF16, cols, &bytes, &mut group);
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
        let bytes = half::bf16::ONE.to_le_bytes().repeat(16 * 64);
        let file = Weights { ty: &BF16, rows: 16, cols: 64, bytes: &bytes };
        let weights = Weights { bytes: &packed_over(0, Isa::SCALAR, &LAYOUT, file), ..file };
        for isa in Isa::available().into_iter().filter(|isa| isa.has_bf16_dot()) {
            let got = product(isa, &LAYOUT, &x, weights, 16);
            assert!(got.iter().all(|v| v.is_nan()));
        }
    }
}
