//! Products of FP8 weights with activations rounded to BF16, where the CPU has dot products of
//! BF16 pairs: every E4M3 code is a BF16 value.
//!
//! Weights are packed when a model is loaded: sixteen rows side by side, for each run of inputs
//! under one scale the scales of the rows, then the codes of two consecutive inputs of each. Codes
//! stay bytes in memory. Some runs at a time are widened into a scratch that the nearest cache
//! holds, and all rows of activations (see [`super::bf16`]) pass over it.
//!
//! One order for every output element, however many rows are computed together: the pairs of a run
//! are added from zero in ascending order, each as `vdpbf16ps` does; the sum of each run, times its
//! scale, is added to one f32 sum in ascending order, the addition fused.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use super::bf16::panel_rows;
use crate::isa::Isa;
use crate::layout::descriptor::Layout;
use crate::layout::operands::{Activations, GROUP, Inputs, Weights};
use crate::quant::{QuantType, fp8::FP8};
use base::Tile;

/// Bytes of the scales of a run of sixteen rows.
pub(super) const SCALES: usize = 4 * GROUP;

/// FP8 weights, for products with activations rounded to BF16.
pub(super) static LAYOUT: Layout = Layout {
    name: "fp8",
    activations: Activations::Bf16,
    bytes: |ty, rows, cols| {
        FP8.contains(&ty).then(|| rows.div_ceil(GROUP).checked_mul(group_bytes(ty, cols)))?
    },
    pack: |_, ty, cols, rows, group| pack(ty, cols, rows, group),
    product,
};

/// Bytes of sixteen rows. A quant block is a run of inputs under one scale.
pub(super) fn group_bytes(ty: &QuantType, cols: usize) -> usize {
    cols / ty.block_len * run_bytes(ty.block_len)
}

/// Bytes of a run of sixteen rows.
pub(super) fn run_bytes(run: usize) -> usize {
    SCALES + run * GROUP
}

pub(super) fn pack(ty: &QuantType, cols: usize, rows: &[u8], group: &mut [u8]) {
    let run = ty.block_len;
    let row_bytes = cols / run * (4 + run);
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

#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
fn product(isa: Isa, inputs: Inputs<'_>, weights: Weights<'_>, tile: &mut Tile<'_, f32>) {
    #[cfg(target_arch = "x86_64")]
    x86::product(panel_rows(isa) == 1, inputs, weights, tile);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::isa::features;
    use crate::layout::bf16::sizes::{PANEL, words};
    use crate::layout::bf16::x86::as_bf16;
    use crate::layout::fp8::{SCALES, group_bytes, run_bytes};
    use crate::layout::operands::{GROUP, Inputs, Weights};
    use crate::layout::outputs::{put_sums, take_sums};
    use crate::layout::panels::{panels, runs};
    use base::Tile;
    use std::arch::x86_64::*;

    /// Most inputs that are widened at a time, except for the longest run.
    const WIDE: usize = 256;
    /// Bytes of a widened pair of sixteen rows.
    const PAIR: usize = 4 * GROUP;
    /// Words of activations that stay in a core's cache while weights pass over them.
    const CACHED: usize = 64 << 10;

    /// Widened codes of a few groups.
    #[repr(align(64))]
    struct Widened<const N: usize>([[u8; WIDE / 2 * PAIR]; N]);

    /// Strides of a panel of inputs, in words: from row to row, and from pair to pair.
    #[derive(Clone, Copy)]
    struct Strides {
        row: usize,
        pair: usize,
    }

    /// Inputs are stored in panels, or `row_by_row`.
    pub(super) fn product(
        row_by_row: bool,
        inputs: Inputs<'_>,
        weights: Weights<'_>,
        tile: &mut Tile<'_, f32>,
    ) {
        for run in runs(inputs.rows, PANEL, CACHED / words(1, weights.cols)) {
            match inputs.rows {
                1 => rows::<4>(row_by_row, inputs, weights, (run.start, run.len()), tile),
                _ => rows::<2>(row_by_row, inputs, weights, (run.start, run.len()), tile),
            }
        }
    }

    /// All columns of the tile for `count` rows from `first`, the start of a panel.
    fn rows<const N: usize>(
        row_by_row: bool,
        inputs: Inputs<'_>,
        weights: Weights<'_>,
        (first, count): (usize, usize),
        tile: &mut Tile<'_, f32>,
    ) {
        let Weights { ty, cols, .. } = weights;
        let (run, pairs, stride) = (ty.block_len, words(1, cols), group_bytes(ty, cols));
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
                    // SAFETY: `Layout::product` checked that the CPU has the features; `runs` runs
                    // are sliced, and as many fit into the scratch.
                    unsafe { widen(packed, run, wide) };
                }
                for (start, width) in panels(count, PANEL) {
                    let row = first + start;
                    let x = &inputs.words[row * pairs..][..width * pairs];
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
                        (_, 6) => part.outputs::<6>(row, places, tile),
                        (_, 5) => part.outputs::<5>(row, places, tile),
                        (_, 4) => part.outputs::<4>(row, places, tile),
                        (_, 3) => part.outputs::<3>(row, places, tile),
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
        /// The widened codes of the run.
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
            // SAFETY: `Layout::product` checked that the CPU has the features; `rows` sliced
            // `packed` to runs that the scratch has, whose pairs are in `x`.
            unsafe { self.add::<M>(&mut sums) };
            put_sums(tile, row, &places, sums.as_flattened());
        }

        features! { Avx512Bf16 compiled
            /// Adds the runs to the sums.
            ///
            /// # Safety
            /// `x` must have as many words of each of `M` rows as `packed` has pairs, `steps`
            /// apart, and the scratch as many pairs.
            unsafe fn add<const M: usize>(&self, sums: &mut [[[f32; GROUP]; N]; M]) {
                let pairs = self.run / 2;
                for index in 0..self.packed[0].len() / run_bytes(self.run) {
                    let mut acc = [[_mm512_setzero_ps(); N]; M];
                    // SAFETY: the caller's promise; `index` is that of a run.
                    unsafe {
                        let x = self.x.as_ptr().add(index * pairs * self.steps.pair);
                        let first = index * pairs * PAIR;
                        let wide = self.wide.each_ref().map(|wide| wide.as_ptr().add(first));
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
                    // SAFETY: 32 bytes are read, and the caller promises space for 64.
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
        /// BF16 bits of 32 codes: exponent and mantissa are shifted and the bias changes, except
        /// for codes below the normal numbers and NaN.
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
    use crate::layout::tests::{packed_over, product};
    use crate::quant::fp8::{FP8_128, value};

    #[test]
    fn every_code_keeps_its_value() {
        // Each code alone: the other inputs are zero.
        let cols = 256;
        let outputs = |isa, codes: &[u8], x: &[f32]| {
            let scale = 1.0f32.to_le_bytes();
            let row = [&scale[..], &codes[..128], &scale, &codes[128..]].concat();
            let file = Weights { ty: &FP8_128, rows: 1, cols, bytes: &row };
            let packed = packed_over(0, isa, &LAYOUT, file);
            product(isa, &LAYOUT, x, Weights { bytes: &packed, ..file }, 1)
        };
        let codes: Vec<u8> = (0..=255).collect();
        for isa in Isa::available().into_iter().filter(|isa| isa.has_bf16_dot()) {
            for code in (0..=255).filter(|code| code & 0x7f != 0x7f) {
                let mut x = vec![0.0; cols];
                x[code] = 1.0;
                // NaN codes would spoil the sum.
                let finite: Vec<_> =
                    codes.iter().map(|c| if c & 0x7f == 0x7f { 0 } else { *c }).collect();
                assert_eq!(outputs(isa, &finite, &x), [value(code as u8)], "{code}");
            }
            assert!(outputs(isa, &codes, &vec![1.0; cols])[0].is_nan());
        }
    }
}
