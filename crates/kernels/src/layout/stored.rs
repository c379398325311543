//! Weights as files store them, row-major: the layout of `exact` mode and of types without a packed
//! one.
//!
//! One order for every output element, whatever the number of rows: K is cut into runs of 1024
//! inputs; within a run, lane `l` of sixteen adds the products of its elements in ascending K;
//! lanes are folded by halves; runs are added in ascending order. Tiles only decide which elements
//! are computed together, never this order.
#![allow(unsafe_code)]

use crate::lanes::scalar::Scalar;
#[cfg(target_arch = "x86_64")]
use crate::lanes::x86::{Avx2, Avx512};
use crate::lanes::{LANES, Lanes};
use crate::layout::descriptor::Layout;
use crate::layout::operands::{Activations, GROUP, Inputs, Weights};
use crate::quant::{BF16, F32};
use base::Tile;

/// Inputs of one run over K.
const RUN: usize = 1024;
/// Activation rows for which widening BF16 weights on their way into a register costs less than
/// passing them through a buffer.
const FEW: usize = 2;
/// Weight rows of one register tile.
const NT: usize = 4;

/// Weights as files store them.
pub static STORED: Layout = Layout {
    name: "stored",
    activations: Activations::F32,
    bytes: |ty, rows, cols| ty.dequantize.and(ty.bytes_for(cols))?.checked_mul(rows),
    pack: |_, _, _, rows, group| group.copy_from_slice(rows),
    product: product_stored,
};

crate::lanes::isa_dispatch! {
    fn product_stored(inputs: Inputs<'_>, weights: Weights<'_>, tile: &mut Tile<'_, f32>) = body
}

#[inline(always)]
fn body<L: RegisterTile>(inputs: Inputs<'_>, weights: Weights<'_>, tile: &mut Tile<'_, f32>) {
    let x = inputs.values();
    if *weights.ty == F32 {
        let mut source = AsStored { base: weights.bytes.as_ptr().cast::<f32>(), k: weights.cols };
        product::<L, _>(x, weights.cols, &mut source, tile);
    } else if *weights.ty == BF16 && tile.rows().len() <= FEW {
        let mut source = AsStored { base: weights.bytes.as_ptr().cast::<u16>(), k: weights.cols };
        product::<L, _>(x, weights.cols, &mut source, tile);
    } else {
        let mut source = Dequantized { weights, run: [0.0; GROUP * RUN] };
        product::<L, _>(x, weights.cols, &mut source, tile);
    }
}

/// How many activation rows a register tile of an instruction set takes.
trait RegisterTile: Lanes {
    const MT: usize;
}

impl RegisterTile for Scalar {
    const MT: usize = 1;
}
#[cfg(target_arch = "x86_64")]
impl RegisterTile for Avx2 {
    const MT: usize = 1;
}
#[cfg(target_arch = "x86_64")]
impl RegisterTile for Avx512 {
    const MT: usize = 6;
}
#[cfg(target_arch = "aarch64")]
impl RegisterTile for crate::lanes::neon::Neon {
    const MT: usize = 1;
}

/// A value as it is stored where the products read it.
trait Element: Copy + Default {
    /// Sixteen values as f32, exactly.
    ///
    /// # Safety
    /// 16 values must be readable; no alignment is needed.
    unsafe fn lanes_at<L: Lanes>(src: *const Self) -> L;
}

impl Element for f32 {
    #[inline(always)]
    unsafe fn lanes_at<L: Lanes>(src: *const f32) -> L {
        // SAFETY: the caller's promise.
        unsafe { L::load_at(src) }
    }
}

/// BF16 bits, widened as they are loaded: the bits of products with a widened copy.
impl Element for u16 {
    #[inline(always)]
    unsafe fn lanes_at<L: Lanes>(src: *const u16) -> L {
        // SAFETY: the caller's promise.
        unsafe { L::load_bf16_at(src) }
    }
}

/// Weights of a group of rows while one run over K is computed.
trait WeightSource<E> {
    /// Pointer to element `[first, k]` and the distance between rows, for `rows` rows of
    /// `len` elements. `first + rows` and `k + len` lie inside the matrix.
    fn group(&mut self, first: usize, rows: usize, k: usize, len: usize) -> (*const E, usize);
}

/// Weights used as the file stores them.
struct AsStored<E> {
    base: *const E,
    k: usize,
}

impl<E> WeightSource<E> for AsStored<E> {
    #[inline(always)]
    fn group(&mut self, first: usize, _rows: usize, k: usize, _len: usize) -> (*const E, usize) {
        (self.base.wrapping_add(first * self.k + k), self.k)
    }
}

/// Weights converted to f32 one group and run at a time.
struct Dequantized<'a> {
    weights: Weights<'a>,
    run: [f32; GROUP * RUN],
}

impl WeightSource<f32> for Dequantized<'_> {
    #[inline(always)]
    fn group(&mut self, first: usize, rows: usize, k: usize, len: usize) -> (*const f32, usize) {
        let Weights { ty, cols, bytes, .. } = self.weights;
        let dequantize = ty.dequantize.expect("`bytes` takes only such types");
        for (row, out) in self.run.chunks_exact_mut(len).take(rows).enumerate() {
            let start = ((first + row) * cols + k) / ty.block_len * ty.block_bytes;
            let src = &bytes[start..start + len / ty.block_len * ty.block_bytes];
            dequantize(src, out);
        }
        (self.run.as_ptr(), len)
    }
}

/// All outputs of `tile`: for each group of weight rows and run over K, every activation row.
#[inline(always)]
fn product<L: RegisterTile, E: Element>(
    x: &[f32],
    k: usize,
    source: &mut impl WeightSource<E>,
    tile: &mut Tile<'_, f32>,
) {
    let cols = tile.cols();
    for first in cols.clone().step_by(GROUP) {
        let rows = GROUP.min(cols.end - first);
        for k0 in (0..k).step_by(RUN) {
            let len = RUN.min(k - k0);
            let (w, stride) = source.group(first, rows, k0, len);
            let group = RowGroup { w, stride, rows, col: first - cols.start };
            // SAFETY: `Layout::product` checked that all rows of `tile` are in `x`; `k0 + len <=
            // k`.
            let x0 = unsafe { x.as_ptr().add(k0) };
            pass::<L, E>(x0, k, len, &group, k0 > 0, tile);
        }
    }
}

struct RowGroup<E> {
    w: *const E,
    stride: usize,
    rows: usize,
    /// Column of the tile where the group's outputs begin.
    col: usize,
}

/// All activation rows of the tile over one group and run.
#[inline(always)]
fn pass<L: RegisterTile, E: Element>(
    x: *const f32,
    k: usize,
    len: usize,
    group: &RowGroup<E>,
    accumulate: bool,
    tile: &mut Tile<'_, f32>,
) {
    let rows = tile.rows();
    let mut row = rows.start;
    while row < rows.end {
        let left = rows.end - row;
        // SAFETY: rows `row..rows.end` of the activations exist, `k` apart.
        let at = unsafe { x.add(row * k) };
        row += match left.min(L::MT) {
            6 => rows_by_group::<L, E, 6>(at, k, len, group, accumulate, tile, row),
            4 | 5 => rows_by_group::<L, E, 4>(at, k, len, group, accumulate, tile, row),
            2 | 3 => rows_by_group::<L, E, 2>(at, k, len, group, accumulate, tile, row),
            _ => rows_by_group::<L, E, 1>(at, k, len, group, accumulate, tile, row),
        };
    }
}

/// `M` activation rows over one group; returns `M`.
#[inline(always)]
fn rows_by_group<L: Lanes, E: Element, const M: usize>(
    x: *const f32,
    k: usize,
    len: usize,
    group: &RowGroup<E>,
    accumulate: bool,
    tile: &mut Tile<'_, f32>,
    row: usize,
) -> usize {
    for n in (0..group.rows).step_by(NT) {
        // Past the end the last row is computed again and its result dropped.
        let w = std::array::from_fn(|i| {
            group.w.wrapping_add((n + i).min(group.rows - 1) * group.stride)
        });
        // SAFETY: M rows of x and the rows `w` hold at least `len` elements each.
        let sums = unsafe { register_tile::<L, E, M>(x, k, w, len) };
        let kept = NT.min(group.rows - n);
        for (m, sums) in sums.iter().enumerate() {
            let out = &mut tile.row_mut(row + m)[group.col + n..][..kept];
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = if accumulate { *out + sum } else { *sum };
            }
        }
    }
    M
}

/// The sums over one run of `M` activation rows (`k` apart) and four weight rows.
///
/// # Safety
/// `len` elements must be readable at each activation row and each weight row.
#[inline(always)]
unsafe fn register_tile<L: Lanes, E: Element, const M: usize>(
    x: *const f32,
    k: usize,
    w: [*const E; NT],
    len: usize,
) -> [[f32; NT]; M] {
    let mut acc = [[L::splat(0.0); NT]; M];
    let whole = len - len % LANES;
    let mut i = 0;
    while i < whole {
        // SAFETY: `i + LANES <= len`.
        unsafe {
            let b = [
                E::lanes_at::<L>(w[0].add(i)),
                E::lanes_at::<L>(w[1].add(i)),
                E::lanes_at::<L>(w[2].add(i)),
                E::lanes_at::<L>(w[3].add(i)),
            ];
            for (m, acc) in acc.iter_mut().enumerate() {
                let a = L::load_at(x.add(m * k + i));
                for (acc, b) in acc.iter_mut().zip(b) {
                    *acc = a.mul_add(b, *acc);
                }
            }
        }
        i += LANES;
    }
    if whole < len {
        // SAFETY: `len - whole` elements are readable behind `whole`.
        unsafe {
            let rest = len - whole;
            let b = [
                E::lanes_at::<L>(tail(w[0].add(whole), rest).as_ptr()),
                E::lanes_at::<L>(tail(w[1].add(whole), rest).as_ptr()),
                E::lanes_at::<L>(tail(w[2].add(whole), rest).as_ptr()),
                E::lanes_at::<L>(tail(w[3].add(whole), rest).as_ptr()),
            ];
            for (m, acc) in acc.iter_mut().enumerate() {
                let a = L::load_at(tail(x.add(m * k + whole), rest).as_ptr());
                for (acc, b) in acc.iter_mut().zip(b) {
                    *acc = a.mul_add(b, *acc);
                }
            }
        }
    }
    // A loop, not `map`: closures are not compiled for the instruction set (see `lanes::x86`).
    let mut sums = [[0.0; NT]; M];
    for (sums, acc) in sums.iter_mut().zip(acc) {
        *sums = L::sum4(acc);
    }
    sums
}

/// The last `rest` elements, filled up with zeros.
///
/// # Safety
/// `rest` elements must be readable.
#[inline(always)]
unsafe fn tail<E: Copy + Default>(src: *const E, rest: usize) -> [E; LANES] {
    let mut full = [E::default(); LANES];
    for (i, slot) in full.iter_mut().enumerate().take(rest) {
        // SAFETY: `rest` elements are readable.
        *slot = unsafe { src.add(i).read_unaligned() };
    }
    full
}
