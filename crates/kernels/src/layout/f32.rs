//! Products of floats of 16 and 8 bits with activations in f32, where the CPU has no faster
//! products.
//!
//! Weights are packed before their first product, in the bits of the file: sixteen rows side by
//! side, so that one load feeds sixteen sums (FP8 weights as in [`super::fp8`]). Activations are
//! stored in panels (see `panels`), the same input of a panel's rows side by side. Weights are
//! widened on their way into a register.
//!
//! One order for every output element, however many rows are computed together: the products of
//! its inputs in ascending order, added to one f32 sum by fused multiply-adds. Where runs of FP8
//! codes have scales, the products of a run are added from zero, and the run's sum, times its
//! scale, to the sum of all, fused, in ascending order.
#![allow(unsafe_code)]

use super::outputs::{Groups, HELD_GROUPS, held_groups, put_sums};
use super::panels::{panels, runs};
use super::{bf16, fp8};
use crate::isa::Isa;
use crate::lanes::scalar::Scalar;
use crate::lanes::transpose::Transpose;
use crate::lanes::widen::Widen;
#[cfg(target_arch = "x86_64")]
use crate::lanes::x86::{Avx2, Avx512};
use crate::lanes::{Kernel, isa_dispatch};
use crate::layout::descriptor::Layout;
use crate::layout::operands::{Activations, GROUP, Inputs, Weights};
use crate::quant::{BF16, F16, QuantType, fp8::FP8};
use base::Tile;
use std::marker::PhantomData;
use std::ops::Range;

/// BF16, F16 and FP8 weights, for products with activations in f32.
pub(super) static LAYOUT: Layout = Layout {
    name: "f32",
    activations: Activations::F32Panels,
    bytes: |ty, rows, cols| {
        let takes = [&BF16, &F16].contains(&ty) || FP8.contains(&ty);
        takes.then(|| rows.div_ceil(GROUP).checked_mul(group_bytes(ty, cols)))?
    },
    pack,
    product,
};

/// Inputs over which the weights of a register tile stay in the nearest cache while all rows pass;
/// even.
const RUN: usize = 512;
/// Activations that stay in a core's cache while weights pass over them.
const CACHED: usize = 128 << 10;
/// Bytes of two consecutive inputs of sixteen rows in 16 bits.
const PAIR: usize = 4 * GROUP;

/// Bytes of sixteen rows of `cols` inputs, or of as many inputs from the start of a run on.
fn group_bytes(ty: &QuantType, cols: usize) -> usize {
    match FP8.contains(&ty) {
        true => fp8::group_bytes(ty, cols),
        false => cols.div_ceil(2) * PAIR,
    }
}

/// Most rows of a panel.
pub(super) fn panel_rows(isa: Isa) -> usize {
    let mut rows = 0;
    ask_rows(isa, &mut rows);
    rows
}

isa_dispatch! {
    fn ask_rows(rows: &mut usize) = ask_rows_body
}

#[inline(always)]
fn ask_rows_body<L: RegisterTile>(rows: &mut usize) {
    *rows = L::ROWS;
}

isa_dispatch! {
    /// Stores rows of `cols` values in panels, as [`Activations::round`].
    pub(super) fn arrange(x: &[f32], cols: usize, out: &mut [u32]) = arrange_body
}

#[inline(always)]
fn arrange_body<L: RegisterTile>(x: &[f32], cols: usize, out: &mut [u32]) {
    let x: &[u32] = bytemuck::cast_slice(x);
    for (start, width) in panels(x.len() / cols, L::ROWS) {
        let part = start * cols..(start + width) * cols;
        let (rows, panel) = (&x[part.clone()], &mut out[part]);
        match width {
            12 => side_by_side::<12>(rows, panel),
            8 => side_by_side::<8>(rows, panel),
            6 => side_by_side::<6>(rows, panel),
            5 => side_by_side::<5>(rows, panel),
            4 => side_by_side::<4>(rows, panel),
            3 => side_by_side::<3>(rows, panel),
            2 => side_by_side::<2>(rows, panel),
            _ => side_by_side::<1>(rows, panel),
        }
    }
}

/// Word `i` of row `m` to word `m` of column `i`.
#[inline(always)]
fn side_by_side<const M: usize>(rows: &[u32], panel: &mut [u32]) {
    let cols = panel.len() / M;
    let rows: [&[u32]; M] = std::array::from_fn(|m| &rows[m * cols..][..cols]);
    for (i, column) in panel.as_chunks_mut::<M>().0.iter_mut().enumerate() {
        for (word, row) in column.iter_mut().zip(rows) {
            *word = row[i];
        }
    }
}

fn pack(isa: Isa, ty: &QuantType, cols: usize, rows: &[u8], group: &mut [u8]) {
    if FP8.contains(&ty) {
        return fp8::pack(ty, cols, rows, group);
    }
    bf16::pack(isa, ty, cols, rows, group);
    if *ty == F16 {
        split_pairs(isa, group);
    }
}

isa_dispatch! {
    /// Turns words of two consecutive inputs of each row into one input of all rows after the
    /// other.
    fn split_pairs(group: &mut [u8]) = split_pairs_body
}

#[inline(always)]
fn split_pairs_body<L: Transpose>(group: &mut [u8]) {
    for words in group.as_chunks_mut::<{ 4 * GROUP }>().0 {
        let pairs = *words;
        let (first, second) = words.split_at_mut(2 * GROUP);
        let halves = first.as_chunks_mut::<2>().0.iter_mut().zip(second.as_chunks_mut().0);
        for (pair, (first, second)) in pairs.as_chunks::<4>().0.iter().zip(halves) {
            *first = [pair[0], pair[1]];
            *second = [pair[2], pair[3]];
        }
    }
}

/// How weights are stored where products read them.
trait Element {
    /// Bytes of two consecutive inputs of sixteen rows.
    const PAIR: usize;
    /// Runs of inputs have scales, in front of them.
    const SCALED: bool = false;

    /// The first or, if `ODD`, the second of two inputs of sixteen rows.
    ///
    /// # Safety
    /// `PAIR` bytes must be readable at `pair`.
    unsafe fn lanes<L: Widen, const ODD: bool>(pair: *const u8) -> L;
}

/// Words of two consecutive inputs in BF16.
struct Bf16Pairs;

impl Element for Bf16Pairs {
    const PAIR: usize = PAIR;

    #[inline(always)]
    unsafe fn lanes<L: Widen, const ODD: bool>(pair: *const u8) -> L {
        // SAFETY: the caller's promise.
        let (even, odd) = unsafe { L::load_bf16_pairs_at(pair.cast()) };
        if ODD { odd } else { even }
    }
}

/// One input in F16 after the other.
struct F16s;

impl Element for F16s {
    const PAIR: usize = PAIR;

    #[inline(always)]
    unsafe fn lanes<L: Widen, const ODD: bool>(pair: *const u8) -> L {
        // SAFETY: the caller's promise.
        unsafe { L::load_f16_at(pair.add(if ODD { 2 * GROUP } else { 0 }).cast()) }
    }
}

/// Codes of two consecutive inputs in FP8, after the scales of a run.
struct Fp8Pairs;

impl Element for Fp8Pairs {
    const PAIR: usize = 2 * GROUP;
    const SCALED: bool = true;

    #[inline(always)]
    unsafe fn lanes<L: Widen, const ODD: bool>(pair: *const u8) -> L {
        // SAFETY: the caller's promise.
        let (even, odd) = unsafe { L::load_e4m3_pairs_at(pair.cast()) };
        if ODD { odd } else { even }
    }
}

/// Groups that are computed together for one row: as many streams of memory.
const STREAMS: usize = 4;

/// Most rows of a panel, and most of its sums: rows by groups.
const MAX_ROWS: usize = 12;
const MAX_SUMS: usize = 24;

isa_dispatch! {
    /// Computes the outputs of `tile`, as [`Layout::product`].
    fn product(inputs: Inputs<'_>, weights: Weights<'_>, tile: &mut Tile<'_, f32>) = body
}

#[inline(always)]
fn body<L: RegisterTile>(inputs: Inputs<'_>, weights: Weights<'_>, tile: &mut Tile<'_, f32>) {
    if *weights.ty == BF16 {
        product_of::<L, Bf16Pairs>(inputs, weights, tile);
    } else if *weights.ty == F16 {
        product_of::<L, F16s>(inputs, weights, tile);
    } else {
        product_of::<L, Fp8Pairs>(inputs, weights, tile);
    }
}

#[inline(always)]
fn product_of<L: RegisterTile, E: Element>(
    inputs: Inputs<'_>,
    weights: Weights<'_>,
    tile: &mut Tile<'_, f32>,
) {
    let ty = weights.ty;
    let groups = Groups::new(&weights, group_bytes(ty, weights.cols), tile);
    for rows in runs(inputs.rows, L::ROWS, CACHED / inputs.cols) {
        if inputs.rows == 1 {
            product_of_panel::<L, E>(inputs, rows, ty, (STREAMS, &groups), tile);
        } else if rows.len() <= L::ROWS {
            product_of_panel::<L, E>(inputs, rows, ty, (L::GROUPS, &groups), tile);
        } else {
            product_held::<L, E>(inputs, rows, ty, &groups, tile);
        }
    }
}

/// Outputs of no more rows than the largest panel has, of some groups of weights of type `ty`
/// together.
#[inline(always)]
fn product_of_panel<L: RegisterTile, E: Element>(
    inputs: Inputs<'_>,
    rows: Range<usize>,
    ty: &QuantType,
    (together, groups): (usize, &Groups),
    tile: &mut Tile<'_, f32>,
) {
    let mut sums = [[0.0; GROUP]; MAX_SUMS];
    // Each of the groups that are computed together goes through a part of the tile of its own,
    // from end to end: a long stream of memory.
    let apart = groups.count.div_ceil(together);
    for group in 0..apart {
        let places: [_; STREAMS] = std::array::from_fn(|n| group + n * apart);
        let weights = places.map(|place| groups.bytes(place));
        let run = Run { inputs, span: 0..inputs.cols, scaled: ty.block_len, weights };
        for (panel, width) in panels(rows.len(), L::ROWS) {
            let (row, sums) = (rows.start + panel, &mut sums[..width * together]);
            match together {
                STREAMS => run.add::<L, E, STREAMS, 1>(row, sums),
                _ => L::panel::<E>(&run, row, width, sums),
            }
            put_sums(tile, row, &places[..together], sums);
        }
    }
}

/// Outputs of `rows`, those of a panel one after the other, so that they are written side by side.
#[inline(always)]
fn product_held<L: RegisterTile, E: Element>(
    inputs: Inputs<'_>,
    rows: Range<usize>,
    ty: &QuantType,
    groups: &Groups,
    tile: &mut Tile<'_, f32>,
) {
    let mut sums = [[0.0; GROUP]; (HELD_GROUPS + 1) * MAX_ROWS];
    for held in held_groups(groups.count, groups.stride(), L::GROUPS) {
        for (panel, width) in panels(rows.len(), L::ROWS) {
            let row = rows.start + panel;
            for from in (0..inputs.cols).step_by(RUN) {
                let span = from..inputs.cols.min(from + RUN);
                let offset = group_bytes(ty, from);
                let sums = sums.chunks_exact_mut(width * L::GROUPS);
                for (first, sums) in held.clone().step_by(L::GROUPS).zip(sums) {
                    let places: [_; STREAMS] = std::array::from_fn(|n| first + n);
                    let weights = places.map(|place| groups.bytes(place).wrapping_add(offset));
                    let run = Run { inputs, span: span.clone(), scaled: ty.block_len, weights };
                    L::panel::<E>(&run, row, width, sums);
                    if span.end == inputs.cols {
                        put_sums(tile, row, &places[..L::GROUPS], sums);
                    }
                }
            }
        }
    }
}

/// A run of inputs of all rows, and of some groups of weights: the address of its first input in
/// each.
struct Run<'a> {
    inputs: Inputs<'a>,
    span: Range<usize>,
    /// Inputs under one scale.
    scaled: usize,
    weights: [*const u8; STREAMS],
}

impl Run<'_> {
    /// Adds the run to the sums of a panel of `M` rows from `row` and of `N` groups, those of a row
    /// one after the other. The first run begins from zero.
    #[inline(always)]
    fn add<L: Widen, E: Element, const N: usize, const M: usize>(
        &self,
        row: usize,
        sums: &mut [[f32; GROUP]],
    ) {
        let panel = &self.inputs.words[row * self.inputs.cols..][..M * self.inputs.cols];
        let x = &panel[M * self.span.start..M * self.span.end];
        let weights = *self.weights.first_chunk().expect("as many groups as any tile has");
        let sums = sums.as_chunks_mut().0.first_chunk_mut().expect("a sum for each output");
        if self.span.start == 0 {
            *sums = [[[0.0; GROUP]; N]; M];
        }
        L::enter(PanelSums::<E, N, M> { x, weights, run: self.scaled, sums, element: PhantomData });
    }
}

/// The work of one register tile: some inputs of a panel of `M` rows by `N` groups of weights.
struct PanelSums<'a, E, const N: usize, const M: usize> {
    x: &'a [u32],
    weights: [*const u8; N],
    /// Inputs under one scale, where weights have scales.
    run: usize,
    sums: &'a mut [[[f32; GROUP]; N]; M],
    element: PhantomData<E>,
}

impl<E: Element, const N: usize, const M: usize> Kernel for PanelSums<'_, E, N, M> {
    #[inline(always)]
    fn run<L: Widen>(self) {
        let mut weights = self.weights;
        let x = self.x.as_chunks::<M>().0;
        if E::SCALED {
            for x in x.chunks_exact(self.run) {
                let mut acc = [[L::splat(0.0); N]; M];
                let scales = weights;
                // SAFETY: `Layout::product` checked that the weights have all inputs of each
                // group, and the scales of each run in front of it.
                unsafe {
                    for at in &mut weights {
                        *at = at.add(fp8::SCALES);
                    }
                    add_all::<L, E, N, M>(x, &mut weights, &mut acc);
                    for (acc, sums) in acc.iter().zip(self.sums.iter_mut()) {
                        for ((acc, sums), scale) in acc.iter().zip(sums).zip(scales) {
                            acc.mul_add(L::load_at(scale.cast()), L::load(sums)).store(sums);
                        }
                    }
                }
            }
            return;
        }
        let mut acc = [[L::splat(0.0); N]; M];
        for (acc, sums) in acc.iter_mut().zip(self.sums.iter()) {
            for (acc, sums) in acc.iter_mut().zip(sums) {
                *acc = L::load(sums);
            }
        }
        // SAFETY: as above.
        unsafe { add_all::<L, E, N, M>(x, &mut weights, &mut acc) };
        for (acc, sums) in acc.iter().zip(self.sums) {
            for (acc, sums) in acc.iter().zip(sums) {
                acc.store(sums);
            }
        }
    }
}

/// Adds inputs of `M` rows by `N` groups, and advances the groups.
///
/// # Safety
/// As many inputs must be readable at each of `weights`.
#[inline(always)]
unsafe fn add_all<L: Widen, E: Element, const N: usize, const M: usize>(
    x: &[[u32; M]],
    weights: &mut [*const u8; N],
    acc: &mut [[L; N]; M],
) {
    let (pairs, last) = x.as_chunks::<2>();
    // SAFETY: the caller's promise.
    unsafe {
        for [even, odd] in pairs {
            add::<L, E, N, M, false>(even, weights, acc);
            add::<L, E, N, M, true>(odd, weights, acc);
            for at in &mut *weights {
                *at = at.add(E::PAIR);
            }
        }
        if let [even] = last {
            add::<L, E, N, M, false>(even, weights, acc);
        }
    }
}

/// Adds one input of `M` rows by `N` groups.
///
/// # Safety
/// A pair of inputs must be readable at each of `weights`.
#[inline(always)]
unsafe fn add<L: Widen, E: Element, const N: usize, const M: usize, const ODD: bool>(
    x: &[u32; M],
    weights: &[*const u8; N],
    acc: &mut [[L; N]; M],
) {
    let mut w = [L::splat(0.0); N];
    for (w, at) in w.iter_mut().zip(weights) {
        // SAFETY: the caller's promise.
        *w = unsafe { E::lanes::<L, ODD>(*at) };
    }
    for (acc, x) in acc.iter_mut().zip(x) {
        let x = L::splat(f32::from_bits(*x));
        for (acc, w) in acc.iter_mut().zip(w) {
            *acc = x.mul_add(w, *acc);
        }
    }
}

/// Which register tiles an instruction set has. Only what is named here is compiled.
trait RegisterTile: Widen {
    /// Most rows of a panel.
    const ROWS: usize;
    /// Groups that are computed together for two rows and more.
    const GROUPS: usize;

    /// Adds a run of inputs to a panel of `width` rows, two or more, from `row` on.
    fn panel<E: Element>(run: &Run<'_>, row: usize, width: usize, sums: &mut [[f32; GROUP]]);
}

impl RegisterTile for Scalar {
    const ROWS: usize = 1;
    const GROUPS: usize = 1;

    fn panel<E: Element>(run: &Run<'_>, row: usize, _width: usize, sums: &mut [[f32; GROUP]]) {
        run.add::<Self, E, 1, 1>(row, sums);
    }
}

/// Tiles of some rows, at most the first number, by as many groups of weights.
macro_rules! tiles {
    ($lanes:ty, $groups:literal: $rows:literal $($fewer:literal)*) => {
        impl RegisterTile for $lanes {
            const ROWS: usize = $rows;
            const GROUPS: usize = $groups;

            #[inline(always)]
            fn panel<E: Element>(
                run: &Run<'_>,
                row: usize,
                width: usize,
                sums: &mut [[f32; GROUP]],
            ) {
                match width {
                    $rows => run.add::<Self, E, $groups, $rows>(row, sums),
                    $($fewer => run.add::<Self, E, $groups, $fewer>(row, sums),)*
                    _ => run.add::<Self, E, $groups, 1>(row, sums),
                }
            }
        }
    };
}

// A group is two registers of sixteen, one of 32, or four of 32.
#[cfg(target_arch = "x86_64")]
tiles!(Avx2, 1: 6 5 4 3 2);
#[cfg(target_arch = "x86_64")]
tiles!(Avx512, 2: 12 8 6 5 4 3 2);
#[cfg(target_arch = "aarch64")]
tiles!(crate::lanes::neon::Neon, 1: 6 5 4 3 2);
