//! The product of quantised activations and packed weights.
#![allow(unsafe_code)]

use super::activations::{RECORD, word};
use super::code_layouts::{Planes, Scales, with_code_layout};
use super::packed::{code_bytes, code_layout, group_bytes};
use super::unpacked::{GROUPS, RUN, Unpacked, UnpackedRuns};
use super::{GROUP, Inputs, Weights, words};
use crate::lanes::Lanes;
#[cfg(target_arch = "aarch64")]
use crate::lanes::int::neon::{Neon, NeonDot};
use crate::lanes::int::scalar::ScalarInt;
#[cfg(target_arch = "x86_64")]
use crate::lanes::int::x86::{Avx2, Avx512Vnni, AvxVnni};
use crate::lanes::int::{IntLanes, Task, int_dispatch};
use crate::layout::panels::panels;
use crate::quant::{BLOCK, SPAN};
use base::Tile;
use std::marker::PhantomData;
use std::ops::Range;

/// Bytes of activations that stay in a core's cache while weights pass over them.
const CACHED: usize = 640 << 10;

/// Rows from which unpacking weights in memory pays.
const MANY: usize = 16;

/// Most rows that one run of weights is multiplied with.
const MOST: usize = 192;

/// Most rows of a register tile.
const PANEL: usize = 6;

/// How far ahead of the products of few rows weights are asked for, in bytes.
const AHEAD: usize = 1536;

int_dispatch! {
    /// Computes the outputs of `tile`, as [`Layout::product`](super::Layout::product).
    pub(super) fn dispatch(
        inputs: Inputs<'_>,
        weights: Weights<'_>,
        tile: &mut Tile<'_, f32>,
    ) = body
}

#[inline(always)]
fn body<I: Tiles>(inputs: Inputs<'_>, weights: Weights<'_>, tile: &mut Tile<'_, f32>) {
    with_code_layout!(code_layout(weights.ty), P, S => product::<I, P, S>(inputs, weights, tile));
}

#[inline(always)]
fn product<I: Tiles, P: Planes, S: Scales>(
    inputs: Inputs<'_>,
    weights: Weights<'_>,
    tile: &mut Tile<'_, f32>,
) {
    let stride = group_bytes(code_layout(weights.ty), weights.cols);
    let first = weights.bytes[tile.cols().start / GROUP * stride..].as_ptr();
    let groups = Groups { first, stride, count: tile.cols().len().div_ceil(GROUP) };
    let row_bytes = 4 * words(1, weights.cols);
    let cached = (CACHED / row_bytes).clamp(MANY, MOST) / I::ROWS * I::ROWS;
    for start in (0..inputs.rows).step_by(cached) {
        let rows = start..inputs.rows.min(start + cached);
        if S::HALVES && rows.len() >= MANY {
            product_unpacked::<I, P, S>(inputs, rows, &groups, tile);
        } else {
            product_packed::<I, P, S>(inputs, rows, &groups, tile);
        }
    }
}

/// The groups of a tile.
struct Groups {
    first: *const u8,
    stride: usize,
    count: usize,
}

impl Groups {
    /// The bytes of a group; past the end those of the last.
    fn bytes(&self, place: usize) -> *const u8 {
        self.first.wrapping_add(place.min(self.count - 1) * self.stride)
    }
}

/// Outputs of `rows` with weights as they are packed.
#[inline(always)]
fn product_packed<I: Tiles, P: Planes, S: Scales>(
    inputs: Inputs<'_>,
    rows: Range<usize>,
    groups: &Groups,
    tile: &mut Tile<'_, f32>,
) {
    let together = I::GROUPS;
    // Each of the groups computed together walks through its own part of the tile.
    let apart = groups.count.div_ceil(together);
    let mut sums = [[0.0; GROUP]; GROUPS * PANEL];
    for group in 0..apart {
        let places = std::array::from_fn(|n| group + n * apart);
        let weights = places.map(|place| groups.bytes(place));
        let mut run = BlockRun { inputs, blocks: 0..inputs.cols / BLOCK, weights, ahead: true };
        for (panel, width) in panels(rows.len(), I::ROWS) {
            run.ahead = panel == 0 && inputs.rows < MANY;
            let (row, sums) = (rows.start + panel, &mut sums[..width * together]);
            I::add::<P, S>(&run, row, width, sums);
            write(row, sums, &places[..together], tile);
        }
    }
}

/// The same with runs of weights that are unpacked once for all of `rows`.
#[inline(always)]
fn product_unpacked<I: Tiles, P: Planes, S: Scales>(
    inputs: Inputs<'_>,
    rows: Range<usize>,
    groups: &Groups,
    tile: &mut Tile<'_, f32>,
) {
    let (together, all) = (I::GROUPS, inputs.cols / BLOCK);
    let mut scratch = UnpackedRuns::new();
    let mut sums = [[0.0; GROUP]; GROUPS * MOST];
    for group in (0..groups.count).step_by(together) {
        let places: [_; GROUPS] = std::array::from_fn(|n| group + n);
        for first in (0..all).step_by(RUN) {
            let blocks = first..all.min(first + RUN);
            let offset = first / SPAN * (S::BYTES + SPAN * code_bytes::<P>());
            let mut weights = places.map(|place| groups.bytes(place).wrapping_add(offset));
            for (n, weights) in weights[..together].iter_mut().enumerate() {
                // SAFETY: `Layout::product` checked the weights to have all groups of the tile,
                // each with all blocks of the inputs.
                *weights = unsafe { scratch.fill::<I, P, S>(n, *weights, blocks.len()) };
            }
            let run = BlockRun { inputs, blocks, weights, ahead: false };
            let last = first + RUN >= all;
            for (panel, width) in panels(rows.len(), I::ROWS) {
                let sums = &mut sums[panel * together..][..width * together];
                I::add::<Unpacked<P>, Unpacked<S>>(&run, rows.start + panel, width, sums);
                // At once, so that the next panel's products hide what writing waits for.
                if last {
                    write(rows.start + panel, sums, &places[..together], tile);
                }
            }
        }
    }
}

/// A run of blocks of all rows of inputs, and of some groups of weights with the address of the
/// first block of each.
struct BlockRun<'a> {
    inputs: Inputs<'a>,
    blocks: Range<usize>,
    weights: [*const u8; GROUPS],
    /// The weights come from memory, and there are too few rows to hide it.
    ahead: bool,
}

impl BlockRun<'_> {
    /// Adds the products of a panel of `M` rows from `row` and `N` groups to `sums`: those of the
    /// groups one after the other, row by row. The first run of blocks begins from zero.
    #[inline(always)]
    fn add_panel<I: IntLanes, P: Planes, S: Scales, const N: usize, const M: usize>(
        &self,
        row: usize,
        sums: &mut [[f32; GROUP]],
    ) {
        let panel = &self.inputs.words[row * self.inputs.cols / BLOCK * RECORD..];
        let panel = &panel[M * self.blocks.start * RECORD..][..M * self.blocks.len() * RECORD];
        I::enter(Sums::<P, S, N, M> {
            panel: panel.as_ptr(),
            weights: self.weights.first_chunk().expect("as many groups as any tile has"),
            blocks: self.blocks.len(),
            goes_on: self.blocks.start > 0,
            ahead: self.ahead,
            sums: &mut sums[..M * N],
            layout: PhantomData,
        });
    }
}

/// Copies the sums of rows from `row` to the outputs in `places`, of which those beyond the tile do
/// not exist.
#[inline(always)]
fn write(row: usize, sums: &[[f32; GROUP]], places: &[usize], tile: &mut Tile<'_, f32>) {
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

/// Which register tiles an instruction set has: `GROUPS` groups of weights pass over panels of
/// `width` rows together, and `add` adds them up. Only what is named here is compiled.
trait Tiles: IntLanes {
    const GROUPS: usize;
    fn add<P: Planes, S: Scales>(
        run: &BlockRun<'_>,
        row: usize,
        width: usize,
        sums: &mut [[f32; GROUP]],
    );
}

impl Tiles for ScalarInt {
    const GROUPS: usize = 1;

    fn add<P: Planes, S: Scales>(
        run: &BlockRun<'_>,
        row: usize,
        _width: usize,
        sums: &mut [[f32; GROUP]],
    ) {
        run.add_panel::<Self, P, S, 1, 1>(row, sums);
    }
}

/// One group is four registers or two, of which there are too few for more.
macro_rules! tiles_of_one_group {
    ($lanes:ty) => {
        impl Tiles for $lanes {
            const GROUPS: usize = 1;

            fn add<P: Planes, S: Scales>(
                run: &BlockRun<'_>,
                row: usize,
                width: usize,
                sums: &mut [[f32; GROUP]],
            ) {
                match width {
                    4 => run.add_panel::<Self, P, S, 1, 4>(row, sums),
                    2 => run.add_panel::<Self, P, S, 1, 2>(row, sums),
                    _ => run.add_panel::<Self, P, S, 1, 1>(row, sums),
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
tiles_of_one_group!(Avx2);
#[cfg(target_arch = "x86_64")]
tiles_of_one_group!(AvxVnni);
#[cfg(target_arch = "aarch64")]
tiles_of_one_group!(Neon);
#[cfg(target_arch = "aarch64")]
tiles_of_one_group!(NeonDot);

/// Six rows by two groups leave all sums in registers, integers and f32. One row reads two groups
/// side by side as well: two streams, of which each is asked for ahead.
#[cfg(target_arch = "x86_64")]
impl Tiles for Avx512Vnni {
    const GROUPS: usize = 2;

    fn add<P: Planes, S: Scales>(
        run: &BlockRun<'_>,
        row: usize,
        width: usize,
        sums: &mut [[f32; GROUP]],
    ) {
        match width {
            6 => run.add_panel::<Self, P, S, 2, 6>(row, sums),
            4 => run.add_panel::<Self, P, S, 2, 4>(row, sums),
            2 => run.add_panel::<Self, P, S, 2, 2>(row, sums),
            _ => run.add_panel::<Self, P, S, 2, 1>(row, sums),
        }
    }
}

/// The work of one register tile: `M` rows of activations, a panel, by `N` groups of weights,
/// all of `blocks` blocks.
struct Sums<'a, P, S, const N: usize, const M: usize> {
    panel: *const u32,
    weights: &'a [*const u8; N],
    blocks: usize,
    /// `sums` has those of the blocks before.
    goes_on: bool,
    /// As in [`BlockRun`].
    ahead: bool,
    /// `[M, N]` groups of outputs.
    sums: &'a mut [[f32; GROUP]],
    layout: PhantomData<(P, S)>,
}

impl<P: Planes, S: Scales, const N: usize, const M: usize> Task for Sums<'_, P, S, N, M> {
    type Output = ();

    #[inline(always)]
    fn run<I: IntLanes>(self) {
        let Self { panel, weights, blocks, goes_on, ahead, sums: out, .. } = self;
        let mut sums = [[I::Float::splat(0.0); N]; M];
        if goes_on {
            for (m, sums) in sums.iter_mut().enumerate() {
                for (n, sum) in sums.iter_mut().enumerate() {
                    *sum = I::Float::load(&out[m * N + n]);
                }
            }
        }
        // SAFETY: `Layout::product` checked the weights to have all groups of the tile, each with
        // all blocks of the inputs, and `UnpackedRuns` has the unpacked ones; the panel was sliced.
        unsafe {
            add_blocks::<I, P, S, N, M>(panel, *weights, (blocks, ahead), &mut sums);
        }
        for (m, sums) in sums.iter().enumerate() {
            for (n, sum) in sums.iter().enumerate() {
                sum.store(&mut out[m * N + n]);
            }
        }
    }
}

/// Adds quad `J` of a block to the integer sums.
///
/// # Safety
/// A block of weights must be readable at each of `codes`, a record of `M` rows at `x`.
#[inline(always)]
unsafe fn quad<I: IntLanes, P: Planes, const N: usize, const M: usize, const J: usize>(
    x: *const u32,
    codes: &[*const u8; N],
    sums: &mut [[I::Sums; N]; M],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut w = [P::codes::<I, J>(codes[0]); N];
        for n in 1..N {
            w[n] = P::codes::<I, J>(codes[n]);
        }
        for (m, sums) in sums.iter_mut().enumerate() {
            let quad = *x.add(J * M + m) as i32;
            for (sum, w) in sums.iter_mut().zip(w) {
                *sum = match P::SIGNED {
                    true => I::dot_signed(*sum, w, quad),
                    false => I::dot(*sum, w, quad),
                };
            }
        }
    }
}

/// Integer sums where the codes' zero is taken into account; `part` 0 is the whole block, 1 and
/// 2 are its halves.
///
/// # Safety
/// A record of `M` rows must be readable at `x`.
#[inline(always)]
unsafe fn start<I: IntLanes, P: Planes, const N: usize, const M: usize>(
    x: *const u32,
    part: usize,
) -> [[I::Sums; N]; M] {
    let zero = if P::SIGNED { I::BIAS } else { P::OFFSET };
    let mut sums = [[I::zero(); N]; M];
    if let Some(shift) = zero {
        for (m, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *sums = [unsafe { I::shifted_at(x.add((word::TOTAL + part) * M + m), shift) }; N];
        }
    }
    sums
}

/// Adds `blocks` blocks of `M` rows and `N` groups to their sums.
///
/// # Safety
/// `blocks` blocks must be readable in each group and in the panel of `M` rows at `x`.
#[inline(always)]
unsafe fn add_blocks<I: IntLanes, P: Planes, S: Scales, const N: usize, const M: usize>(
    mut x: *const u32,
    groups: [*const u8; N],
    (blocks, ahead): (usize, bool),
    acc: &mut [[I::Float; N]; M],
) {
    let mut scales = groups;
    let mut codes = groups;
    for block in 0..blocks {
        if block % SPAN == 0 {
            scales = codes;
            for at in &mut codes {
                *at = at.wrapping_add(S::BYTES);
            }
            if ahead {
                ask::<I, N>(&scales, S::BYTES);
            }
        }
        if ahead {
            ask::<I, N>(&codes, code_bytes::<P>());
        }
        // SAFETY: `block < blocks`, and the pointers advance a block at a time.
        unsafe {
            let at = Scaling { scales: &scales, block: block % SPAN, x };
            if S::HALVES {
                let mut a = start::<I, P, N, M>(x, 1);
                quad::<I, P, N, M, 0>(x, &codes, &mut a);
                quad::<I, P, N, M, 1>(x, &codes, &mut a);
                quad::<I, P, N, M, 2>(x, &codes, &mut a);
                quad::<I, P, N, M, 3>(x, &codes, &mut a);
                let first = at.first::<I, S, M>(&a);
                let mut b = start::<I, P, N, M>(x, 2);
                quad::<I, P, N, M, 4>(x, &codes, &mut b);
                quad::<I, P, N, M, 5>(x, &codes, &mut b);
                quad::<I, P, N, M, 6>(x, &codes, &mut b);
                quad::<I, P, N, M, 7>(x, &codes, &mut b);
                at.add::<I, M>(&at.second::<I, S, M>(&b, &first), acc);
                at.minima::<I, S, M>(1, acc);
                at.minima::<I, S, M>(2, acc);
            } else {
                let mut a = start::<I, P, N, M>(x, 0);
                quad::<I, P, N, M, 0>(x, &codes, &mut a);
                quad::<I, P, N, M, 1>(x, &codes, &mut a);
                quad::<I, P, N, M, 2>(x, &codes, &mut a);
                quad::<I, P, N, M, 3>(x, &codes, &mut a);
                quad::<I, P, N, M, 4>(x, &codes, &mut a);
                quad::<I, P, N, M, 5>(x, &codes, &mut a);
                quad::<I, P, N, M, 6>(x, &codes, &mut a);
                quad::<I, P, N, M, 7>(x, &codes, &mut a);
                at.add::<I, M>(&at.first::<I, S, M>(&a), acc);
                at.minima::<I, S, M>(0, acc);
            }
            x = x.add(M * RECORD);
            for at in &mut codes {
                *at = at.add(code_bytes::<P>());
            }
        }
    }
}

/// Asks for `bytes` bytes that are read soon.
#[inline(always)]
fn ask<I: IntLanes, const N: usize>(streams: &[*const u8; N], bytes: usize) {
    for at in streams {
        for line in (0..bytes).step_by(64) {
            I::Float::prefetch(at.wrapping_add(AHEAD + line));
        }
    }
}

/// What the integer sums of a block are worth: where the scales of its span are in each group,
/// which block of the span it is, and the record of the activations.
struct Scaling<'a, const N: usize> {
    scales: &'a [*const u8; N],
    block: usize,
    x: *const u32,
}

/// Everything here is the caller's promise: a record of `M` rows is readable at `x`, and as
/// [`Scales::scale`] and [`Scales::min`] at each of `scales`.
impl<const N: usize> Scaling<'_, N> {
    /// Sums of the whole block, or of its first half, times the scales of the weights.
    #[inline(always)]
    unsafe fn first<I: IntLanes, S: Scales, const M: usize>(
        &self,
        sums: &[[I::Sums; N]; M],
    ) -> [[I::Float; N]; M] {
        let mut scaled = [[I::Float::splat(0.0); N]; M];
        for n in 0..N {
            // SAFETY: see above.
            let scale = unsafe { S::scale::<I>(self.scales[n], self.block, 0) };
            for (scaled, sums) in scaled.iter_mut().zip(sums) {
                scaled[n] = I::float(sums[n]).mul(scale);
            }
        }
        scaled
    }

    /// The same of a second half, added to that of the first.
    #[inline(always)]
    unsafe fn second<I: IntLanes, S: Scales, const M: usize>(
        &self,
        sums: &[[I::Sums; N]; M],
        first: &[[I::Float; N]; M],
    ) -> [[I::Float; N]; M] {
        let mut scaled = *first;
        for n in 0..N {
            // SAFETY: see above.
            let scale = unsafe { S::scale::<I>(self.scales[n], self.block, 1) };
            for (scaled, sums) in scaled.iter_mut().zip(sums) {
                scaled[n] = I::float(sums[n]).mul_add(scale, scaled[n]);
            }
        }
        scaled
    }

    /// Adds what was scaled, times the scales of the activations.
    #[inline(always)]
    unsafe fn add<I: IntLanes, const M: usize>(
        &self,
        scaled: &[[I::Float; N]; M],
        acc: &mut [[I::Float; N]; M],
    ) {
        for (m, (acc, scaled)) in acc.iter_mut().zip(scaled).enumerate() {
            // SAFETY: see above.
            let unit = unsafe { f32::from_bits(*self.x.add(word::SCALE * M + m)) };
            for (acc, scaled) in acc.iter_mut().zip(scaled) {
                *acc = scaled.mul_add(I::Float::splat(unit), *acc);
            }
        }
    }

    /// Takes off the minima, if there are any, of part `part` (see [`start`]).
    #[inline(always)]
    unsafe fn minima<I: IntLanes, S: Scales, const M: usize>(
        &self,
        part: usize,
        acc: &mut [[I::Float; N]; M],
    ) {
        if !S::MINS {
            return;
        }
        for n in 0..N {
            // SAFETY: see above.
            let min = unsafe { S::min::<I>(self.scales[n], self.block, part.max(1) - 1) };
            for (m, acc) in acc.iter_mut().enumerate() {
                // SAFETY: see above.
                let sum = unsafe { f32::from_bits(*self.x.add((word::SCALED + part) * M + m)) };
                acc[n] = min.mul_add(I::Float::splat(sum), acc[n]);
            }
        }
    }
}
