//! Products of BF16 in the tile registers of AMX: sixteen rows by sixteen outputs in one
//! instruction.
//!
//! Weights are packed as the parent module says: a step of sixteen pairs of inputs of a group is
//! 1024 bytes and one tile. Inputs are stored row by row.
//!
//! One order for every output element, whatever rows are computed together: `tdpbf16ps` adds, for
//! the 32 inputs of a step, the products of even inputs and of odd ones each in ascending order and
//! both to the sum; steps come in ascending order, the last filled up with zeros.
#![allow(unsafe_code)]

use crate::layout::bf16::sizes::words;
use crate::layout::operands::{GROUP, Inputs, Weights};
use base::Tile;
use std::arch::asm;

/// Rows of a tile.
const ROWS: usize = 16;
/// Pairs of inputs of a step.
const PAIRS: usize = 16;
/// Bytes of a tile.
const BYTES: usize = 1024;
/// Steps over which weights stay in a core's cache while all rows pass.
const RUN: usize = 64;

/// A tile of sums, or of what fills a step up.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Square([[u32; 16]; 16]);

const ZEROS: Square = Square([[0; 16]; 16]);

/// Shapes of the tile registers: 0 to 3 hold sums, 4 and 5 inputs of up to sixteen rows each, the
/// others weights.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl TileConfig {
    /// Two tiles of rows by two of outputs, or one by four where the second has no rows.
    fn set(first: usize, second: usize) {
        let (a, b) = (first as u8, second as u8);
        let mut shape =
            Self { palette: 1, start: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        shape.row_bytes[..8].fill(64);
        let rows = match second {
            0 => [a, a, a, a, a, 16, 16, 16],
            _ => [a, a, b, b, a, b, 16, 16],
        };
        shape.rows[..8].copy_from_slice(&rows);
        // SAFETY: `product` runs only where the CPU has tiles; the shape is one that they can take.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &shape, options(nostack, readonly)) };
    }

    /// Releases the registers, which the system would have to save otherwise.
    fn release() {
        // SAFETY: as above.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Computes the outputs of `tile`, as [`Layout::product`](crate::layout::Layout::product), which
/// checks the shapes.
pub(crate) fn product(inputs: Inputs<'_>, weights: Weights<'_>, tile: &mut Tile<'_, f32>) {
    let pairs = words(1, weights.cols);
    let steps = pairs.div_ceil(PAIRS);
    let groups = tile.cols().len().div_ceil(GROUP);
    for from in (0..steps).step_by(RUN) {
        let run = StepRun { inputs, weights, pairs, steps: from..(from + RUN).min(steps) };
        for row in (0..inputs.rows).step_by(2 * ROWS) {
            let rows = (inputs.rows - row).min(2 * ROWS);
            let (first, second) = (rows.min(ROWS), rows.saturating_sub(ROWS));
            TileConfig::set(first, second);
            match second {
                0 => (0..groups).step_by(4).for_each(|group| run.add::<1, 4>(row, group, tile)),
                _ => (0..groups).step_by(2).for_each(|group| run.add::<2, 2>(row, group, tile)),
            }
        }
    }
    TileConfig::release();
}

/// Operations of one of the `steps` of [`multiply`]: four tiles of sums.
pub(crate) const OPS_PER_STEP: u64 = 4 * 2 * 16 * 16 * 32;

/// Multiplies tiles in registers, `steps` times four of them, and returns one of the sums.
pub(crate) fn multiply(steps: u64, seed: f32) -> f32 {
    let mut sums = [[ZEROS; 2]; 2];
    let mut input = ZEROS;
    input.0.as_flattened_mut().fill(seed.to_bits());
    TileConfig::set(ROWS, ROWS);
    let (sums_at, input_at): (*mut u8, *const u8) =
        (sums.as_mut_ptr().cast(), std::ptr::from_ref(&input).cast());
    if steps > 0 {
        // SAFETY: the caller has an `Isa` with tiles; four squares lie at `sums_at`, one at
        // `input_at`.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "tileloadd tmm4, [{input} + {line}*1]",
                "tileloadd tmm5, [{input} + {line}*1]",
                "tileloadd tmm6, [{input} + {line}*1]",
                "tileloadd tmm7, [{input} + {line}*1]",
                "2:",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{sums} + {line}*1], tmm0",
                input = in(reg) input_at,
                sums = in(reg) sums_at,
                line = in(reg) 64usize,
                steps = inout(reg) steps => _,
                out("tmm0") _,
                out("tmm1") _,
                out("tmm2") _,
                out("tmm3") _,
                out("tmm4") _,
                out("tmm5") _,
                out("tmm6") _,
                out("tmm7") _,
                options(nostack),
            );
        }
    }
    TileConfig::release();
    f32::from_bits(sums[0][0].0[0][0])
}

/// Some steps of the inputs of a product.
struct StepRun<'a> {
    inputs: Inputs<'a>,
    weights: Weights<'a>,
    /// Pairs of inputs in all.
    pairs: usize,
    steps: std::ops::Range<usize>,
}

impl StepRun<'_> {
    /// Adds the run to the outputs of up to `M` tiles of rows from `row` by up to `N` groups.
    #[inline(always)]
    fn add<const M: usize, const N: usize>(
        &self,
        row: usize,
        group: usize,
        tile: &mut Tile<'_, f32>,
    ) {
        let cols = tile.cols();
        let groups = cols.len().div_ceil(GROUP);
        let group_bytes = self.pairs * 4 * GROUP;
        // Past the end the last group is computed again, and dropped.
        let mut at = [std::ptr::null(); N];
        for (n, at) in at.iter_mut().enumerate() {
            let place = cols.start / GROUP + (group + n).min(groups - 1);
            *at = self.weights.bytes[place * group_bytes..][..group_bytes].as_ptr();
        }
        let rows = (self.inputs.rows - row).min(M * ROWS);
        let first = self.inputs.words[row * self.pairs..][..rows * self.pairs].as_ptr();
        let mut sums = [[ZEROS; N]; M];
        if self.steps.start > 0 {
            outputs(tile, (row, rows), group, &mut sums, |sum, out| *sum = out.to_bits());
        }
        let whole = (self.pairs / PAIRS).min(self.steps.end) - self.steps.start;
        let place = TileInputs { x: first.cast(), stride: 4 * self.pairs, weights: at };
        let place = place.behind(self.steps.start);
        // SAFETY: `whole` steps of all rows and groups are there, sliced above, and tiles have the
        // shape that `product` set.
        unsafe { place.steps(whole, &mut sums) };
        if self.steps.end * PAIRS > self.pairs {
            self.last(row, rows, at, &mut sums);
        }
        outputs(tile, (row, rows), group, &mut sums, |sum, out| *out = f32::from_bits(*sum));
    }

    /// The last step, which is not whole.
    #[inline(always)]
    fn last<const M: usize, const N: usize>(
        &self,
        row: usize,
        rows: usize,
        groups: [*const u8; N],
        sums: &mut [[Square; N]; M],
    ) {
        let (start, left) = (self.pairs / PAIRS * PAIRS, self.pairs % PAIRS);
        let (mut x, mut weights) = ([ZEROS; M], [ZEROS; N]);
        for (index, to) in x.iter_mut().flat_map(|square| &mut square.0).enumerate().take(rows) {
            let from = &self.inputs.words[(row + index) * self.pairs + start..][..left];
            to[..left].copy_from_slice(from);
        }
        for (to, from) in weights.iter_mut().zip(groups) {
            for (pair, to) in to.0.iter_mut().enumerate().take(left) {
                // SAFETY: the group has `pairs` times 64 bytes, and `start + left` is `pairs`.
                *to = unsafe { from.add((start + pair) * 64).cast::<[u32; 16]>().read_unaligned() };
            }
        }
        let mut at = [std::ptr::null(); N];
        for (at, square) in at.iter_mut().zip(&weights) {
            *at = std::ptr::from_ref(square).cast();
        }
        let place = TileInputs { x: x.as_ptr().cast(), stride: 64, weights: at };
        // SAFETY: one step of whole tiles.
        unsafe { place.steps(1, sums) };
    }
}

/// Calls `f` with each sum and its output; sums beyond the tile have no output.
#[inline(always)]
fn outputs<const M: usize, const N: usize>(
    tile: &mut Tile<'_, f32>,
    (row, rows): (usize, usize),
    group: usize,
    sums: &mut [[Square; N]; M],
    f: impl Fn(&mut u32, &mut f32),
) {
    for index in 0..rows {
        let out = tile.row_mut(row + index);
        for (n, square) in sums[index / ROWS].iter_mut().enumerate() {
            let start = ((group + n) * GROUP).min(out.len());
            let end = (start + GROUP).min(out.len());
            let sums = &mut square.0[index % ROWS];
            sums.iter_mut().zip(&mut out[start..end]).for_each(|(sum, out)| f(sum, out));
        }
    }
}

/// Addresses of the operands of the next step.
#[derive(Clone, Copy)]
struct TileInputs<const N: usize> {
    /// Rows of activations, `stride` bytes apart.
    x: *const u8,
    stride: usize,
    /// Groups of weights.
    weights: [*const u8; N],
}

impl<const N: usize> TileInputs<N> {
    fn behind(mut self, steps: usize) -> Self {
        self.x = self.x.wrapping_add(steps * 4 * PAIRS);
        for at in &mut self.weights {
            *at = at.wrapping_add(steps * BYTES);
        }
        self
    }

    /// Adds `count` steps to the sums.
    ///
    /// # Safety
    /// The CPU must have tiles, whose shape has been set for `M` by `N`; `count` steps of as many
    /// rows as that says and of all groups must be readable.
    #[inline(always)]
    unsafe fn steps<const M: usize>(self, count: usize, sums: &mut [[Square; N]; M]) {
        if count == 0 {
            return;
        }
        let sums: *mut u8 = sums.as_mut_ptr().cast();
        let Self { x, stride, weights } = self;
        // SAFETY: the caller's promise; four squares of sums lie one after the other.
        unsafe {
            match M {
                1 => one_by_four(
                    x,
                    stride,
                    [weights[0], weights[1], weights[2], weights[3]],
                    count,
                    sums,
                ),
                _ => two_by_two(x, stride, [weights[0], weights[1]], count, sums),
            }
        }
    }
}

/// # Safety
/// As [`TileInputs::steps`]; four squares of sums at `sums`.
#[inline(always)]
unsafe fn one_by_four(
    x: *const u8,
    stride: usize,
    [w0, w1, w2, w3]: [*const u8; 4],
    count: usize,
    sums: *mut u8,
) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "tileloadd tmm0, [{sums} + {line}*1]",
            "tileloadd tmm1, [{sums} + {line}*1 + 1024]",
            "tileloadd tmm2, [{sums} + {line}*1 + 2048]",
            "tileloadd tmm3, [{sums} + {line}*1 + 3072]",
            "2:",
            "tileloadd tmm4, [{x} + {stride}*1]",
            "tileloadd tmm5, [{w0} + {line}*1]",
            "tileloadd tmm6, [{w1} + {line}*1]",
            "tdpbf16ps tmm0, tmm4, tmm5",
            "tileloadd tmm7, [{w2} + {line}*1]",
            "tdpbf16ps tmm1, tmm4, tmm6",
            "tileloadd tmm5, [{w3} + {line}*1]",
            "tdpbf16ps tmm2, tmm4, tmm7",
            "tdpbf16ps tmm3, tmm4, tmm5",
            "add {x}, 64",
            "add {w0}, 1024",
            "add {w1}, 1024",
            "add {w2}, 1024",
            "add {w3}, 1024",
            "dec {count}",
            "jnz 2b",
            "tilestored [{sums} + {line}*1], tmm0",
            "tilestored [{sums} + {line}*1 + 1024], tmm1",
            "tilestored [{sums} + {line}*1 + 2048], tmm2",
            "tilestored [{sums} + {line}*1 + 3072], tmm3",
            x = inout(reg) x => _,
            w0 = inout(reg) w0 => _,
            w1 = inout(reg) w1 => _,
            w2 = inout(reg) w2 => _,
            w3 = inout(reg) w3 => _,
            count = inout(reg) count => _,
            stride = in(reg) stride,
            line = in(reg) 64usize,
            sums = in(reg) sums,
            out("tmm0") _,
            out("tmm1") _,
            out("tmm2") _,
            out("tmm3") _,
            out("tmm4") _,
            out("tmm5") _,
            out("tmm6") _,
            out("tmm7") _,
            options(nostack),
        );
    }
}

/// # Safety
/// As [`TileInputs::steps`]; four squares of sums at `sums`.
#[inline(always)]
unsafe fn two_by_two(
    x: *const u8,
    stride: usize,
    [w0, w1]: [*const u8; 2],
    count: usize,
    sums: *mut u8,
) {
    // SAFETY: the caller's promise; the second tile of rows begins sixteen rows behind the first.
    unsafe {
        asm!(
            "tileloadd tmm0, [{sums} + {line}*1]",
            "tileloadd tmm1, [{sums} + {line}*1 + 1024]",
            "tileloadd tmm2, [{sums} + {line}*1 + 2048]",
            "tileloadd tmm3, [{sums} + {line}*1 + 3072]",
            "2:",
            "tileloadd tmm4, [{x} + {stride}*1]",
            "tileloadd tmm6, [{w0} + {line}*1]",
            "tileloadd tmm7, [{w1} + {line}*1]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{y} + {stride}*1]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {x}, 64",
            "add {y}, 64",
            "add {w0}, 1024",
            "add {w1}, 1024",
            "dec {count}",
            "jnz 2b",
            "tilestored [{sums} + {line}*1], tmm0",
            "tilestored [{sums} + {line}*1 + 1024], tmm1",
            "tilestored [{sums} + {line}*1 + 2048], tmm2",
            "tilestored [{sums} + {line}*1 + 3072], tmm3",
            x = inout(reg) x => _,
            y = inout(reg) x.wrapping_add(ROWS * stride) => _,
            w0 = inout(reg) w0 => _,
            w1 = inout(reg) w1 => _,
            count = inout(reg) count => _,
            stride = in(reg) stride,
            line = in(reg) 64usize,
            sums = in(reg) sums,
            out("tmm0") _,
            out("tmm1") _,
            out("tmm2") _,
            out("tmm3") _,
            out("tmm4") _,
            out("tmm5") _,
            out("tmm6") _,
            out("tmm7") _,
            options(nostack),
        );
    }
}
