//! Products of FP8 weights with activations rounded to BF16, where the CPU has dot products of
//! BF16 pairs: every E4M3 code is a BF16 value.
//!
//! Weights are packed when a model is loaded: sixteen rows side by side, for each run of inputs
//! under one scale the scales of the rows, then the codes of two consecutive inputs of each. Codes
//! stay bytes in memory. Some runs at a time are widened into a scratch that the nearest cache
//! holds, and all rows of activations (see [`crate::layout::bf16`]) pass over it.
//!
//! One order for every output element, however many rows are computed together: the pairs of a run
//! are added from zero in ascending order, each as `vdpbf16ps` does, and what comes out, times the
//! scale, goes in ascending order to one f32 sum, the addition fused.
#![allow(unsafe_code)]

use crate::Isa;
use crate::layout::bf16::{Activations, GROUP, panel_rows, words};
use crate::quant::{QuantType, fp8::FP8};
use base::Tile;

/// Bytes of the scales of a run of sixteen rows.
const SCALES: usize = 4 * GROUP;

/// FP8 weights `[rows, cols]`, packed by [`pack`].
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    /// Inputs under one scale; divides `cols`.
    pub run: usize,
    /// Outputs of the product.
    pub rows: usize,
    /// Inputs of the product.
    pub cols: usize,
    /// `packed_bytes(run, rows, cols)` bytes.
    pub bytes: &'a [u8],
}

/// Inputs under one scale, if this is a type of FP8 weights.
pub fn run_of(ty: &QuantType) -> Option<usize> {
    FP8.contains(&ty).then_some(ty.block_len)
}

/// Bytes that `rows` rows of `cols` weights take.
pub fn packed_bytes(run: usize, rows: usize, cols: usize) -> usize {
    rows.div_ceil(GROUP) * group_bytes(run, cols)
}

fn group_bytes(run: usize, cols: usize) -> usize {
    cols / run * run_bytes(run)
}

/// Bytes of a run of sixteen rows.
fn run_bytes(run: usize) -> usize {
    SCALES + run * GROUP
}

/// Packs sixteen rows of `cols` values, or as many as are left, into one group: `rows` holds their
/// bytes as [`crate::quant::fp8`] has them, `group` is overwritten.
pub fn pack(run: usize, cols: usize, rows: &[u8], group: &mut [u8]) {
    let row_bytes = cols / run * (4 + run);
    assert!(cols > 0 && cols.is_multiple_of(run) && run.is_multiple_of(2), "rows of whole runs");
    assert!(rows.len().is_multiple_of(row_bytes) && rows.len() <= GROUP * row_bytes, "whole rows");
    assert_eq!(group.len(), group_bytes(run, cols), "bytes of a group");
    if rows.len() < GROUP * row_bytes {
        group.fill(0);
    }
    for (index, out) in group.chunks_exact_mut(run_bytes(run)).enumerate() {
        let (scales, codes) = out.split_at_mut(SCALES);
        for (row, bytes) in rows.chunks_exact(row_bytes).enumerate() {
            let (scale, pairs) = bytes[index * (4 + run)..][..4 + run].split_at(4);
            scales[4 * row..][..4].copy_from_slice(scale);
            let slots = codes.as_chunks_mut::<{ 2 * GROUP }>().0.iter_mut();
            for (slot, pair) in slots.zip(pairs.as_chunks::<2>().0) {
                slot.as_chunks_mut().0[row] = *pair;
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
    let Packed { run, rows, cols, bytes } = weights;
    assert!(isa.has_bf16_dot(), "no BF16 dot product on {isa:?}");
    assert_eq!(cols, input.cols, "inputs of the product");
    assert!(cols > 0 && cols.is_multiple_of(run) && run.is_multiple_of(2), "rows of whole runs");
    assert!(FP8.iter().any(|ty| ty.block_len == run), "a run of some type");
    assert_eq!(bytes.len(), packed_bytes(run, rows, cols), "bytes of the weights");
    assert_eq!(input.words.len(), words(input.rows, cols), "words of the activations");
    assert!(tile.rows() == (0..input.rows), "tiles span all rows");
    assert!(tile.cols().end <= rows && tile.cols().start.is_multiple_of(GROUP), "columns");
    #[cfg(target_arch = "x86_64")]
    x86::product(panel_rows(isa) == 1, input, weights, tile);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Activations, GROUP, Packed, SCALES, group_bytes, run_bytes, words};
    use crate::isa::features;
    use crate::layout::bf16::PANEL;
    use crate::layout::bf16::x86::{as_bf16, put_sums, take_sums};
    use crate::layout::panels::panels;
    use base::Tile;
    use std::arch::x86_64::*;

    /// Most inputs that are widened at a time, but for the longest run.
    const WIDE: usize = 256;
    /// Bytes of a widened pair of sixteen rows.
    const PAIR: usize = 4 * GROUP;
    /// Words of activations that stay in a core's cache while weights pass over them.
    const CACHED: usize = 64 << 10;

    /// Widened codes of a few groups.
    #[repr(align(64))]
    struct Widened<const N: usize>([[u8; WIDE / 2 * PAIR]; N]);

    /// Where the activations of a panel lie: words from row to row, and from pair to pair.
    #[derive(Clone, Copy)]
    struct Strides {
        row: usize,
        pair: usize,
    }

    /// Activations lie in panels, or `row_by_row`.
    pub(super) fn product(
        row_by_row: bool,
        input: Activations<'_>,
        weights: Packed<'_>,
        tile: &mut Tile<'_, f32>,
    ) {
        let cached = (CACHED / words(1, weights.cols)).max(PANEL) / PANEL * PANEL;
        for first in (0..input.rows).step_by(cached) {
            let count = cached.min(input.rows - first);
            match input.rows {
                1 => rows::<4>(row_by_row, input, weights, (first, count), tile),
                _ => rows::<2>(row_by_row, input, weights, (first, count), tile),
            }
        }
    }

    /// All columns of the tile for `count` rows from `first`, the start of a panel.
    fn rows<const N: usize>(
        row_by_row: bool,
        input: Activations<'_>,
        weights: Packed<'_>,
        (first, count): (usize, usize),
        tile: &mut Tile<'_, f32>,
    ) {
        let Packed { run, cols, .. } = weights;
        let (pairs, stride) = (words(1, cols), group_bytes(run, cols));
        let groups = &weights.bytes[tile.cols().start / GROUP * stride..];
        let last = tile.cols().len().div_ceil(GROUP) - 1;
        // Each of the groups that are computed together goes through a part of the tile of its
        // own, from end to end: a long stream of memory.
        let apart = (last + 1).div_ceil(N);
        let (all, together) = (cols / run, WIDE / run);
        let mut scratch = Widened([[0; WIDE / 2 * PAIR]; N]);
        for group in 0..apart {
            // Past the end the last group is computed again.
            let places = std::array::from_fn::<_, N, _>(|n| (group + n * apart).min(last));
            for from in (0..all).step_by(together) {
                let runs = together.min(all - from);
                let part = |place: usize| {
                    let start = place * stride + from * run_bytes(run);
                    &groups[start..start + runs * run_bytes(run)]
                };
                let packed = places.map(part);
                for (packed, wide) in packed.iter().zip(&mut scratch.0) {
                    // SAFETY: `matmul` checked that the CPU has the features; `runs` runs are
                    // sliced, and as many fit into the scratch.
                    unsafe { widen(packed, run, wide) };
                }
                for (start, width) in panels(count, PANEL) {
                    let row = first + start;
                    let x = &input.words[row * pairs..][..width * pairs];
                    let steps = match row_by_row {
                        true => Strides { row: pairs, pair: 1 },
                        false => Strides { row: 1, pair: width },
                    };
                    let x = &x[from * run / 2 * steps.pair..];
                    let part =
                        PanelPart { x, steps, packed, wide: &scratch.0, run, goes_on: from > 0 };
                    match (N, width) {
                        (4, _) => part.outputs::<1>(row, places, tile),
                        (_, 8) => part.outputs::<8>(row, places, tile),
                        (_, 4) => part.outputs::<4>(row, places, tile),
                        (_, 2) => part.outputs::<2>(row, places, tile),
                        _ => part.outputs::<1>(row, places, tile),
                    }
                }
            }
        }
    }

    /// Some runs of a panel of activations and of `N` groups of weights.
    struct PanelPart<'a, const N: usize> {
        /// The panel's activations from these runs on.
        x: &'a [u32],
        steps: Strides,
        /// The runs as they are packed: their scales count.
        packed: [&'a [u8]; N],
        /// Their codes, widened.
        wide: &'a [[u8; WIDE / 2 * PAIR]; N],
        run: usize,
        /// The outputs have the sums of the runs before.
        goes_on: bool,
    }

    impl<const N: usize> PanelPart<'_, N> {
        /// `M` rows by `N` groups of outputs.
        fn outputs<const M: usize>(
            &self,
            row: usize,
            places: [usize; N],
            tile: &mut Tile<'_, f32>,
        ) {
            let mut sums = [[[0.0; GROUP]; N]; M];
            if self.goes_on {
                take_sums(tile, row, places, &mut sums);
            }
            let Strides { row: apart, pair } = self.steps;
            let pairs = self.packed[0].len() / run_bytes(self.run) * self.run / 2;
            assert!(self.x.len() > (M - 1) * apart + (pairs - 1) * pair, "all pairs of all rows");
            // SAFETY: `matmul` checked that the CPU has the features; `rows` sliced `packed` to
            // runs that the scratch has, whose pairs are in `x`.
            unsafe { self.add::<M>(&mut sums) };
            put_sums(tile, row, places, &sums);
        }

        features! { Avx512Bf16 compiled
            /// Adds the runs to the sums.
            ///
            /// # Safety
            /// `x` must have as many words of each of `M` rows as `packed` has pairs, `steps` apart, and
            /// the scratch as many pairs.
            unsafe fn add<const M: usize>(&self, sums: &mut [[[f32; GROUP]; N]; M]) {
                let pairs = self.run / 2;
                for index in 0..self.packed[0].len() / run_bytes(self.run) {
                    let mut acc = [[_mm512_setzero_ps(); N]; M];
                    // SAFETY: the caller's promise; `index` is that of a run.
                    unsafe {
                        let x = self.x.as_ptr().add(index * pairs * self.steps.pair);
                        let wide =
                            self.wide.each_ref().map(|wide| wide.as_ptr().add(index * pairs * PAIR));
                        for pair in 0..pairs {
                            let w = wide.map(|at| _mm512_loadu_si512(at.add(pair * PAIR).cast()));
                            for (m, acc) in acc.iter_mut().enumerate() {
                                let word = x.add(pair * self.steps.pair + m * self.steps.row);
                                let x = _mm512_set1_epi32(*word as i32);
                                for (acc, w) in acc.iter_mut().zip(w) {
                                    *acc = _mm512_dpbf16_ps(*acc, as_bf16(w), as_bf16(x));
                                }
                            }
                        }
                        for n in 0..N {
                            let scale = self.packed[n].as_ptr().add(index * run_bytes(self.run));
                            let scale = _mm512_loadu_ps(scale.cast());
                            for (acc, sums) in acc.iter().zip(sums.iter_mut()) {
                                let sum = _mm512_loadu_ps(sums[n].as_ptr());
                                let sum = _mm512_fmadd_ps(acc[n], scale, sum);
                                _mm512_storeu_ps(sums[n].as_mut_ptr(), sum);
                            }
                        }
                    }
                }
            }
        }
    }

    features! { Avx512Bf16 compiled
        /// The codes of whole packed runs as BF16.
        ///
        /// # Safety
        /// `packed` must hold whole runs, no more than fit into `wide`.
        unsafe fn widen(packed: &[u8], run: usize, wide: &mut [u8; WIDE / 2 * PAIR]) {
            let mut to = wide.as_mut_ptr();
            for bytes in packed.chunks_exact(run_bytes(run)) {
                for pair in bytes[SCALES..].as_chunks::<{ 2 * GROUP }>().0 {
                    // SAFETY: 32 bytes are read, and the caller promises room for 64.
                    unsafe {
                        let codes = _mm256_loadu_si256(pair.as_ptr().cast());
                        _mm512_storeu_si512(to.cast(), to_bf16(codes));
                        to = to.add(PAIR);
                    }
                }
            }
        }
    }

    features! { Avx512Bf16 compiled
        /// BF16 bits of 32 codes: exponent and mantissa move up and the bias changes, but for codes
        /// below the normal numbers and NaN.
        #[inline]
        pub(super) fn to_bf16(codes: __m256i) -> __m512i {
            let codes = _mm512_cvtepu8_epi16(codes);
            let magnitude = _mm512_and_si512(codes, _mm512_set1_epi16(0x7f));
            let normal =
                _mm512_add_epi16(_mm512_slli_epi16::<4>(magnitude), _mm512_set1_epi16(120 << 7));
            // 0 to 7 times 2^-9, of which the lookup takes the first eight words.
            let small = _mm_set_epi16(0x3c60, 0x3c40, 0x3c20, 0x3c00, 0x3bc0, 0x3b80, 0x3b00, 0);
            let small = _mm512_broadcast_i32x4(small);
            let below = _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8));
            let finite = _mm512_mask_permutexvar_epi16(normal, below, magnitude, small);
            let nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7f));
            let value = _mm512_mask_blend_epi16(nan, finite, _mm512_set1_epi16(0x7fc0));
            let sign = _mm512_and_si512(_mm512_slli_epi16::<8>(codes), _mm512_set1_epi16(-0x8000));
            _mm512_or_si512(value, sign)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::bf16;
    use crate::quant::fp8::value;
    use base::{Rng, ThreadPool};

    fn isas() -> impl Iterator<Item = Isa> {
        Isa::available().into_iter().filter(|isa| isa.has_bf16_dot())
    }

    /// Rows of runs, as checkpoints come.
    fn weights(ty: &QuantType, rows: usize, cols: usize) -> Vec<u8> {
        let mut rng = Rng::new(1);
        let mut bytes = Vec::new();
        for _ in 0..rows * cols / ty.block_len {
            bytes.extend((rng.normal() / 100.0).to_le_bytes());
            bytes.extend(
                (0..ty.block_len).map(|_| rng.below(0x7f) as u8 | (rng.below(2) << 7) as u8),
            );
        }
        bytes
    }

    fn pack_all(run: usize, rows: usize, cols: usize, bytes: &[u8]) -> Vec<u8> {
        let mut packed = vec![0xff; packed_bytes(run, rows, cols)];
        let groups = packed.chunks_exact_mut(group_bytes(run, cols));
        for (bytes, group) in bytes.chunks(GROUP * (cols / run) * (4 + run)).zip(groups) {
            pack(run, cols, bytes, group);
        }
        packed
    }

    fn product(isa: Isa, x: &[f32], weights: Packed<'_>, columns: usize) -> Vec<f32> {
        let (rows, cols) = (x.len() / weights.cols, weights.cols);
        let mut all = vec![0; words(rows, cols)];
        bf16::round(isa, x, cols, &mut all);
        let input = Activations { words: &all, rows, cols };
        let mut out = vec![f32::NAN; rows * weights.rows];
        ThreadPool::new(1).unwrap().for_each_tile(
            &mut out,
            weights.rows,
            (rows, columns),
            |mut tile| {
                matmul(isa, input, weights, &mut tile);
            },
        );
        out
    }

    fn activations(len: usize) -> Vec<f32> {
        let mut rng = Rng::new(2);
        (0..len).map(|_| half::bf16::from_f32(rng.normal()).to_f32()).collect()
    }

    #[test]
    fn products_agree_with_the_naive_sum() {
        for ty in FP8 {
            let run = ty.block_len;
            for (m, n, k) in [(1, 5, run), (3, 70, 5 * run), (11, 35, 9 * run)] {
                let (x, bytes) = (activations(m * k), weights(ty, n, k));
                let mut w = vec![0.0; n * k];
                (ty.dequantize.unwrap())(&bytes, &mut w);
                let packed = pack_all(run, n, k, &bytes);
                for isa in isas() {
                    let got = product(isa, &x, Packed { run, rows: n, cols: k, bytes: &packed }, n);
                    for (at, got) in got.iter().enumerate() {
                        let (x, w) = (&x[at / n * k..][..k], &w[at % n * k..][..k]);
                        let terms = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w));
                        let (want, size) = terms.fold((0.0, 0.0), |(s, a), t| (s + t, a + t.abs()));
                        let off = (f64::from(*got) - want).abs();
                        assert!(off <= 1e-5 * size, "{ty} {m}x{n}x{k}: {got} is not {want}");
                    }
                }
            }
        }
    }

    #[test]
    fn one_row_alone_has_the_bits_it_has_among_many() {
        for ty in FP8 {
            let (run, m, n, k) = (ty.block_len, 15, 100, 9 * ty.block_len);
            let x = activations(m * k);
            let packed = pack_all(run, n, k, &weights(ty, n, k));
            let weights = Packed { run, rows: n, cols: k, bytes: &packed };
            for isa in isas() {
                let whole = product(isa, &x, weights, 48);
                for (row, want) in x.chunks_exact(k).zip(whole.chunks_exact(n)) {
                    assert_eq!(product(isa, row, weights, 64), want, "{ty}");
                }
            }
        }
    }

    #[test]
    fn every_code_keeps_its_value() {
        // Each code alone: the other inputs are zero.
        let (run, cols) = (128, 256);
        let codes: Vec<u8> = (0..=255).collect();
        let scale = 1.0f32.to_le_bytes();
        let row = [&scale[..], &codes[..128], &scale, &codes[128..]].concat();
        let packed = pack_all(run, 1, cols, &row);
        for isa in isas() {
            for code in (0..=255).filter(|code| code & 0x7f != 0x7f) {
                let mut x = vec![0.0; cols];
                x[code] = 1.0;
                // NaN codes would spoil the sum.
                let mut packed = packed.clone();
                packed.iter_mut().filter(|code| **code & 0x7f == 0x7f).for_each(|nan| *nan = 0);
                let got = product(isa, &x, Packed { run, rows: 1, cols, bytes: &packed }, 1);
                assert_eq!(got, [value(code as u8)], "{code}");
            }
            let got =
                product(isa, &vec![1.0; cols], Packed { run, rows: 1, cols, bytes: &packed }, 1);
            assert!(got[0].is_nan());
        }
    }
}
