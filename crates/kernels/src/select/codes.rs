//! Index scores from codes: integer products of E2M1 codes, sixteen heads at a time.
//!
//! Twice the value of a code is a whole number, so the sum of a block is an exact integer, and
//! exact in f32 under the scales of both sides.
#![allow(unsafe_code)]

use crate::isa::Isa;
use crate::kv::{KvType, PlainRows, Rounding, RowList, scale_of};
use crate::lanes::int::{IntLanes, int_dispatch};
use crate::lanes::widen::Widen;
use crate::lanes::{Kernel, LANES, Lanes, run_on};
use crate::select::heads::{BLOCK, add_heads};
use base::AlignedVec;

/// Twice the values of E2M1 codes.
const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
/// What makes the codes of queries non-negative.
const BIAS: i32 = 12;
/// Codes of one step of a product.
const QUAD: usize = 4;
/// Quads of a block.
const QUADS: usize = BLOCK / QUAD;
/// Rows that share a pass over the queries.
const ROWS: usize = 16;
/// Codes in the low or high bits of as many bytes as a load takes.
const STEP: usize = 64;

/// Codes of queries, and of some rows.
#[derive(Default)]
pub(super) struct CodeScratch {
    dim: usize,
    /// Codes of the queries plus [`BIAS`]: `[group][dim / 4][16 heads][4]`.
    queries: AlignedVec<u8>,
    /// A quarter of their scales, since both sides are doubled: `[group][block][16 heads]`.
    scales: AlignedVec<f32>,
    /// Signed codes of some rows: `[ROWS][dim]`, blocks as in the queries.
    rows: AlignedVec<i32>,
    /// `-BIAS` times the sum of the codes of each block, `[ROWS][blocks]`, and the scales.
    starts: Vec<u32>,
    row_scales: Vec<f32>,
}

impl CodeScratch {
    /// Makes space for `heads` heads of `dim` codes.
    fn fit(&mut self, dim: usize, heads: usize) {
        let (groups, blocks) = (heads.div_ceil(LANES), dim / BLOCK);
        let len = groups * LANES * dim;
        if self.queries.len() < len {
            self.queries = AlignedVec::zeroed(len);
            self.scales = AlignedVec::zeroed(len / BLOCK);
        }
        // Heads that are missing in the last group have codes of zero.
        let last = (groups - 1) * LANES * dim;
        self.queries[last..len].fill(BIAS as u8);
        self.scales[last / BLOCK..len / BLOCK].fill(0.0);
        let words = ROWS * 2 * half_words(dim);
        if self.rows.len() < words {
            self.rows = AlignedVec::zeroed(words);
        }
        self.dim = dim;
        self.starts.resize(ROWS * blocks, 0);
        self.row_scales.resize(ROWS * blocks, 0.0);
    }
}

/// Turns the queries `q` into codes; returns whether rows are codes and queries are values of such
/// codes too, so that nothing is lost.
pub(super) fn pack(isa: Isa, q: &[f32], rows: PlainRows, scratch: &mut CodeScratch) -> bool {
    let of_codes = rows.ty == KvType::Fp8 && rows.rounding == Rounding::Fp4;
    if !of_codes || !rows.dim.is_multiple_of(BLOCK) {
        return false;
    }
    scratch.fit(rows.dim, q.len() / rows.dim);
    let mut exact = true;
    run_on(isa, Pack { q, scratch, exact: &mut exact });
    exact
}

struct Pack<'a> {
    q: &'a [f32],
    scratch: &'a mut CodeScratch,
    exact: &'a mut bool,
}

impl Kernel for Pack<'_> {
    #[inline(always)]
    fn run<L: Widen>(self) {
        let CodeScratch { dim, queries, scales, .. } = self.scratch;
        let blocks = *dim / BLOCK;
        for (index, values) in self.q.as_chunks::<BLOCK>().0.iter().enumerate() {
            let (head, block) = (index / blocks, index % blocks);
            let (group, lane) = (head / LANES, head % LANES);
            let mut codes = [0; BLOCK];
            let scale = codes_of(values, &mut codes);
            if scale.is_nan() {
                *self.exact = false;
                return;
            }
            let at = (group * blocks + block) * LANES;
            scales[at + lane] = 0.25 * scale;
            let quads = queries[at * BLOCK..][..LANES * BLOCK].chunks_exact_mut(LANES * QUAD);
            for (to, quad) in quads.zip(codes.as_chunks::<QUAD>().0) {
                to[lane * QUAD..][..QUAD].copy_from_slice(quad);
            }
        }
    }
}

/// Twice the values of a block plus [`BIAS`] in units of their scale, which is returned; NaN if
/// they are no whole numbers.
#[inline(always)]
fn codes_of(values: &[f32; BLOCK], codes: &mut [u8; BLOCK]) -> f32 {
    let scale = Rounding::Fp4.scale(values);
    let mut exact = true;
    for (code, value) in codes.iter_mut().zip(values) {
        let doubled = value / scale * 2.0;
        let whole = doubled as i32;
        exact &= whole as f32 == doubled;
        *code = (whole + BIAS) as u8;
    }
    if exact { scale } else { f32::NAN }
}

int_dispatch! {
    /// Scores of all rows, of which `scratch` has the queries' codes. `weights` has a value for
    /// each head in whole sixteens.
    pub(super) fn scores(
        rows: RowList<'_>,
        weights: &[f32],
        scratch: &mut CodeScratch,
        out: &mut [f32],
    ) = scores_body
}

#[inline(always)]
fn scores_body<I: IntLanes>(
    rows: RowList<'_>,
    weights: &[f32],
    scratch: &mut CodeScratch,
    out: &mut [f32],
) {
    let weights = weights.as_chunks::<LANES>().0;
    for (index, out) in out.chunks_mut(ROWS).enumerate() {
        for row in 0..out.len() {
            unpack::<I>(rows.row(index * ROWS + row), rows.rows, row, scratch);
        }
        let mut sums = [[0.0; LANES]; ROWS];
        let mut group = 0;
        while group < weights.len() {
            let wide = I::ROWS > 4 && group + 4 <= weights.len();
            let mut row = 0;
            while row < out.len() {
                let (sums, weights) = (&mut sums[row..], &weights[group..]);
                row += match (wide, out.len() - row) {
                    (true, 4..) => tile::<I, 4, 4>(scratch, (row, group), sums, weights),
                    (true, _) => tile::<I, 1, 4>(scratch, (row, group), sums, weights),
                    (false, 4..) => tile::<I, 4, 1>(scratch, (row, group), sums, weights),
                    (false, _) => tile::<I, 1, 1>(scratch, (row, group), sums, weights),
                };
            }
            group += if wide { 4 } else { 1 };
        }
        for (out, sums) in out.iter_mut().zip(&sums) {
            *out = I::Float::load(sums).sum();
        }
    }
}

/// Words of one half of a row's codes: those in the low bits of bytes, then those in the high ones.
fn half_words(dim: usize) -> usize {
    (dim / 2).next_multiple_of(STEP) / QUAD
}

/// Unpacks the codes of a row to place `row`, with the starts of its sums and its scales.
#[inline(always)]
fn unpack<I: IntLanes>(bytes: &[u8], rows: PlainRows, row: usize, scratch: &mut CodeScratch) {
    let (half, blocks) = (half_words(scratch.dim), scratch.dim / BLOCK);
    let (codes, exponents) = bytes.split_at(rows.scales_at());
    let exponents = &exponents[..blocks];
    let words = &mut scratch.rows[2 * half * row..][..2 * half];
    let (low, high) = words.split_at_mut(half);
    let halves = low.chunks_exact_mut(STEP / QUAD).zip(high.chunks_exact_mut(STEP / QUAD));
    for (codes, (low, high)) in codes.chunks(STEP).zip(halves) {
        let mut all = [0; STEP];
        all[..codes.len()].copy_from_slice(codes);
        // SAFETY: every side is 64 bytes.
        unsafe {
            let codes = I::codes_at(all.as_ptr());
            let values = I::lookup(&DOUBLED, I::field(codes, 0, 15));
            I::store_codes(values, low.as_mut_ptr().cast());
            let values = I::lookup(&DOUBLED, I::field(codes, 4, 15));
            I::store_codes(values, high.as_mut_ptr().cast());
        }
    }
    let starts = scratch.starts[row * blocks..].iter_mut();
    let scales = scratch.row_scales[row * blocks..].iter_mut();
    for (block, ((start, scale), exponent)) in starts.zip(scales).zip(exponents).enumerate() {
        let at = block * QUADS / 2;
        let sum = sum_of(&low[at..][..QUADS / 2]) + sum_of(&high[at..][..QUADS / 2]);
        *start = (-BIAS * sum).cast_unsigned();
        *scale = scale_of(*exponent);
    }
}

/// The sum of the signed bytes of some words.
#[inline(always)]
fn sum_of(words: &[i32]) -> i32 {
    bytemuck::cast_slice::<i32, i8>(words).iter().map(|code| i32::from(*code)).sum()
}

/// Adds the products of `R` rows from `row` on with `G` groups of heads from `group` on to the sums
/// of the rows; returns `R`.
#[inline(always)]
fn tile<I: IntLanes, const R: usize, const G: usize>(
    scratch: &CodeScratch,
    (row, group): (usize, usize),
    sums: &mut [[f32; LANES]],
    weights: &[[f32; LANES]],
) -> usize {
    let (dim, half) = (scratch.dim, half_words(scratch.dim));
    let blocks = dim / BLOCK;
    let queries = &scratch.queries[group * LANES * dim..][..G * LANES * dim];
    let scales = &scratch.scales[group * LANES * blocks..][..G * LANES * blocks];
    let rows = &scratch.rows[row * 2 * half..][..R * 2 * half];
    let starts = &scratch.starts[row * blocks..][..R * blocks];
    let row_scales = &scratch.row_scales[row * blocks..][..R * blocks];
    let mut totals = [[I::Float::splat(0.0); G]; R];
    for block in 0..blocks {
        // SAFETY: `block` is one of the blocks of all slices, and each half of a row has four
        // quads of it.
        unsafe {
            let mut products = [[I::zero(); G]; R];
            for (r, products) in products.iter_mut().enumerate() {
                *products = [I::sums_at(starts.as_ptr().add(r * blocks + block)); G];
            }
            for quad in 0..QUADS {
                let from = queries.as_ptr().add((block * QUADS + quad) * LANES * QUAD);
                let at = quad / (QUADS / 2) * half + block * QUADS / 2 + quad % (QUADS / 2);
                let mut codes = [I::codes_at(from); G];
                let mut g = 1;
                while g < G {
                    codes[g] = I::codes_at(from.add(g * LANES * dim));
                    g += 1;
                }
                for (r, products) in products.iter_mut().enumerate() {
                    let quad = *rows.as_ptr().add(r * 2 * half + at);
                    for (product, codes) in products.iter_mut().zip(codes) {
                        *product = I::close(*product, I::dot(I::open(*product), codes, quad));
                    }
                }
            }
            for (r, (totals, products)) in totals.iter_mut().zip(products).enumerate() {
                let row_scale = I::Float::splat(row_scales[r * blocks + block]);
                for (g, (total, product)) in totals.iter_mut().zip(products).enumerate() {
                    let scale = scales.as_ptr().add((g * blocks + block) * LANES);
                    let scale = I::Float::load_at(scale).mul(row_scale);
                    *total = I::float(product).mul_add(scale, *total);
                }
            }
        }
    }
    for (sums, totals) in sums.iter_mut().zip(totals) {
        add_heads(sums, totals, weights);
    }
    R
}
