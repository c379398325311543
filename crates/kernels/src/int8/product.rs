//! The product of quantised activations and packed weights.
#![allow(unsafe_code)]

use super::activations::{RECORD, word};
use super::forms::{Planes, SPAN, Scales, with_form};
use super::packed::{Packed, code_bytes, group_bytes};
use super::{Activations, BLOCK, GROUP, words};
use crate::Isa;
#[cfg(target_arch = "aarch64")]
use crate::lanes::int::neon::Neon;
use crate::lanes::int::scalar::Scalar;
#[cfg(target_arch = "x86_64")]
use crate::lanes::int::x86::{Avx2, Avx512Vnni, AvxVnni};
use crate::lanes::int::{IntLanes, Task, int_dispatch};
use crate::lanes::{LANES, Lanes};
use crate::panels::panels;
use base::Tile;
use std::marker::PhantomData;

/// Bytes of activations that stay in a core's cache while weights pass over them.
const CACHED: usize = 192 << 10;

/// How far ahead of the products of one row weights are asked for, in bytes.
const AHEAD: usize = 1536;

/// Computes the outputs of `tile`, whose columns are weight rows and whose rows are all rows of
/// `input`. The tile's first column is a multiple of [`GROUP`].
pub fn matmul(isa: Isa, input: Activations<'_>, weights: Packed<'_>, tile: &mut Tile<'_, f32>) {
    let Packed { form, rows, cols, bytes } = weights;
    assert_eq!(cols, input.cols, "inputs of the product");
    assert_eq!(bytes.len(), Packed::bytes_for(form, rows, cols), "bytes of the weights");
    assert_eq!(input.words.len(), words(input.rows, cols), "words of the activations");
    assert!(tile.rows() == (0..input.rows), "tiles span all rows");
    assert!(tile.cols().end <= rows && tile.cols().start.is_multiple_of(GROUP), "columns");
    dispatch(isa, input, weights, tile);
}

int_dispatch! {
    fn dispatch(input: Activations<'_>, weights: Packed<'_>, tile: &mut Tile<'_, f32>) = body
}

#[inline(always)]
fn body<I: Tiles>(input: Activations<'_>, weights: Packed<'_>, tile: &mut Tile<'_, f32>) {
    with_form!(weights.form, P, S => product::<I, P, S>(input, weights, tile));
}

/// The groups of a tile and what they are multiplied with.
struct Product<'a> {
    input: Activations<'a>,
    /// First group of the tile.
    groups: *const u8,
    stride: usize,
    blocks: usize,
}

#[inline(always)]
fn product<I: Tiles, P: Planes, S: Scales>(
    input: Activations<'_>,
    weights: Packed<'_>,
    tile: &mut Tile<'_, f32>,
) {
    let stride = group_bytes(weights.form, weights.cols);
    let groups = weights.bytes[tile.cols().start / GROUP * stride..].as_ptr();
    let product = Product { input, groups, stride, blocks: weights.cols / BLOCK };
    let row_bytes = 4 * words(1, weights.cols);
    let cached = (CACHED / row_bytes).max(I::ROWS) / I::ROWS * I::ROWS;
    for first in (0..input.rows).step_by(cached) {
        let last = (first + cached).min(input.rows);
        rows::<I, P, S>(&product, first, last - first, tile);
    }
}

/// Which register tiles an instruction set has: `groups` says how many groups of weights pass
/// over panels of `width` rows together, `outputs` computes them. Only what is named here is
/// compiled.
trait Tiles: IntLanes {
    fn groups(rows: usize) -> usize;
    fn outputs<P: Planes, S: Scales>(at: At<'_>, width: usize, tile: &mut Tile<'_, f32>);
}

impl Tiles for Scalar {
    fn groups(_rows: usize) -> usize {
        1
    }

    fn outputs<P: Planes, S: Scales>(at: At<'_>, _width: usize, tile: &mut Tile<'_, f32>) {
        outputs::<Self, P, S, 1, 1>(at, tile);
    }
}

/// One group is four registers or two, of which there are too few for more.
macro_rules! tiles_of_one_group {
    ($lanes:ty) => {
        impl Tiles for $lanes {
            fn groups(_rows: usize) -> usize {
                1
            }

            fn outputs<P: Planes, S: Scales>(at: At<'_>, width: usize, tile: &mut Tile<'_, f32>) {
                match width {
                    4 => outputs::<Self, P, S, 1, 4>(at, tile),
                    2 => outputs::<Self, P, S, 1, 2>(at, tile),
                    _ => outputs::<Self, P, S, 1, 1>(at, tile),
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

/// Six rows by two groups leave all sums in registers, integers and f32. One row reads four groups
/// side by side, which keeps more reads of memory under way.
#[cfg(target_arch = "x86_64")]
impl Tiles for Avx512Vnni {
    fn groups(rows: usize) -> usize {
        if rows == 1 { 4 } else { 2 }
    }

    fn outputs<P: Planes, S: Scales>(at: At<'_>, width: usize, tile: &mut Tile<'_, f32>) {
        match (width, Self::groups(at.product.input.rows)) {
            (6, _) => outputs::<Self, P, S, 2, 6>(at, tile),
            (4, _) => outputs::<Self, P, S, 2, 4>(at, tile),
            (2, _) => outputs::<Self, P, S, 2, 2>(at, tile),
            (_, 4) => outputs::<Self, P, S, 4, 1>(at, tile),
            _ => outputs::<Self, P, S, 2, 1>(at, tile),
        }
    }
}

/// A place in a product: a row of activations, the start of a panel, and a group of the tile.
#[derive(Clone, Copy)]
struct At<'a> {
    product: &'a Product<'a>,
    row: usize,
    group: usize,
    /// Groups between those that are computed together.
    apart: usize,
}

/// All columns of the tile for `count` rows from `first`, the start of a panel.
#[inline(always)]
fn rows<I: Tiles, P: Planes, S: Scales>(
    product: &Product<'_>,
    first: usize,
    count: usize,
    tile: &mut Tile<'_, f32>,
) {
    let groups = tile.cols().len().div_ceil(GROUP);
    let together = I::groups(product.input.rows);
    // Each of those together goes through a part of the tile of its own, from end to end.
    let apart = groups.div_ceil(together);
    for group in 0..apart {
        for (start, width) in panels(count, I::ROWS) {
            let at = At { product, row: first + start, group, apart };
            I::outputs::<P, S>(at, width, tile);
        }
    }
}

/// `M` rows by `N` groups of outputs.
#[inline(always)]
fn outputs<I: IntLanes, P: Planes, S: Scales, const N: usize, const M: usize>(
    at: At<'_>,
    tile: &mut Tile<'_, f32>,
) {
    let At { product, row, group, apart } = at;
    let Product { input, groups, stride, blocks } = *product;
    // Past the end the last group is computed again.
    let last = (tile.cols().len() - 1) / GROUP;
    let mut places = [group; N];
    let mut weights = [groups; N];
    for (n, (place, at)) in places.iter_mut().zip(&mut weights).enumerate() {
        *place = (group + n * apart).min(last);
        *at = groups.wrapping_add(*place * stride);
    }
    let panel = input.words[row * blocks * RECORD..][..M * blocks * RECORD].as_ptr();
    let sums = I::enter(Sums::<P, S, N, M> { panel, weights, blocks, form: PhantomData });
    for (m, sums) in sums.iter().enumerate() {
        let out = tile.row_mut(row + m);
        for (sum, place) in sums.iter().zip(places) {
            let out = &mut out[place * GROUP..];
            let kept = GROUP.min(out.len());
            out[..kept].copy_from_slice(&sum[..kept]);
        }
    }
}

/// The work of one register tile: `M` rows of activations, a panel, by `N` groups of weights,
/// all of `blocks` blocks.
struct Sums<P, S, const N: usize, const M: usize> {
    panel: *const u32,
    weights: [*const u8; N],
    blocks: usize,
    form: PhantomData<(P, S)>,
}

impl<P: Planes, S: Scales, const N: usize, const M: usize> Task for Sums<P, S, N, M> {
    type Output = [[[f32; LANES]; N]; M];

    #[inline(always)]
    fn run<I: IntLanes>(self) -> Self::Output {
        // SAFETY: `matmul` checked the weights to have all groups of the tile, each with `blocks`
        // blocks; the panel was sliced to `M` rows of as many.
        let sums = unsafe { sums::<I, P, S, N, M>(self.panel, self.weights, self.blocks) };
        let mut out = [[[0.0; LANES]; N]; M];
        for (sums, out) in sums.iter().zip(&mut out) {
            for (sum, out) in sums.iter().zip(out) {
                sum.store(out);
            }
        }
        out
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
    let mut sums = [[I::sums(0, 0); N]; M];
    if let Some(shift) = zero {
        for (m, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            let total = unsafe { *x.add((word::TOTAL + part) * M + m) } as i32;
            *sums = [I::sums(total, shift); N];
        }
    }
    sums
}

/// The sums over all blocks of `M` rows and `N` groups.
///
/// # Safety
/// `blocks` blocks must be readable in each group and in the panel of `M` rows at `x`.
#[inline(always)]
unsafe fn sums<I: IntLanes, P: Planes, S: Scales, const N: usize, const M: usize>(
    mut x: *const u32,
    groups: [*const u8; N],
    blocks: usize,
) -> [[I::Float; N]; M] {
    let mut acc = [[I::Float::splat(0.0); N]; M];
    let mut scales = groups;
    let mut codes = groups;
    for block in 0..blocks {
        if block % SPAN == 0 {
            scales = codes;
            for at in &mut codes {
                *at = at.wrapping_add(S::BYTES);
            }
            if M == 1 {
                ahead::<I, N>(&scales, S::BYTES);
            }
        }
        if M == 1 {
            ahead::<I, N>(&codes, code_bytes::<P>());
        }
        // SAFETY: `block < blocks`, and the pointers advance a block at a time.
        unsafe {
            if S::HALVES {
                let mut a = start::<I, P, N, M>(x, 1);
                quad::<I, P, N, M, 0>(x, &codes, &mut a);
                quad::<I, P, N, M, 1>(x, &codes, &mut a);
                quad::<I, P, N, M, 2>(x, &codes, &mut a);
                quad::<I, P, N, M, 3>(x, &codes, &mut a);
                add::<I, S, N, M>(&a, x, (&scales, block % SPAN, 1), &mut acc);
                let mut b = start::<I, P, N, M>(x, 2);
                quad::<I, P, N, M, 4>(x, &codes, &mut b);
                quad::<I, P, N, M, 5>(x, &codes, &mut b);
                quad::<I, P, N, M, 6>(x, &codes, &mut b);
                quad::<I, P, N, M, 7>(x, &codes, &mut b);
                add::<I, S, N, M>(&b, x, (&scales, block % SPAN, 2), &mut acc);
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
                add::<I, S, N, M>(&a, x, (&scales, block % SPAN, 0), &mut acc);
            }
            x = x.add(M * RECORD);
            for at in &mut codes {
                *at = at.add(code_bytes::<P>());
            }
        }
    }
    acc
}

/// Asks for `bytes` bytes that are read soon: one row has too little to do while it waits.
#[inline(always)]
fn ahead<I: IntLanes, const N: usize>(streams: &[*const u8; N], bytes: usize) {
    for at in streams {
        for line in (0..bytes).step_by(64) {
            I::Float::prefetch(at.wrapping_add(AHEAD + line));
        }
    }
}

/// Adds the integer sums of part `part` of a block (see [`start`]), scaled, and takes off the
/// minima.
///
/// # Safety
/// A record of `M` rows must be readable at `x`, and as [`Scales::scale`] and [`Scales::min`] at
/// each of `scales`.
#[inline(always)]
unsafe fn add<I: IntLanes, S: Scales, const N: usize, const M: usize>(
    sums: &[[I::Sums; N]; M],
    x: *const u32,
    (scales, block, part): (&[*const u8; N], usize, usize),
    acc: &mut [[I::Float; N]; M],
) {
    let half = part.max(1) - 1;
    for n in 0..N {
        // SAFETY: the caller's promise.
        unsafe {
            let scale = S::scale::<I>(scales[n], block, half);
            for (m, (acc, sums)) in acc.iter_mut().zip(sums).enumerate() {
                let unit = I::Float::splat(f32::from_bits(*x.add(word::SCALE * M + m)));
                acc[n] = I::float(sums[n]).mul(scale).mul_add(unit, acc[n]);
            }
            if S::MINS {
                let min = S::min::<I>(scales[n], block, half);
                for (m, acc) in acc.iter_mut().enumerate() {
                    let sum = f32::from_bits(*x.add((word::SCALED + part) * M + m));
                    acc[n] = min.mul_add(I::Float::splat(sum), acc[n]);
                }
            }
        }
    }
}
