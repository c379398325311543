//! Causal attention over a KV cache stored in blocks.
//!
//! Layout of one layer's cache, for `B` positions a block (a multiple of 16) and KV heads `h`:
//! keys `[block][h][dim][B]` (transposed, so that sixteen positions are sixteen lanes and no
//! score needs a horizontal sum), values `[block][h][B][dim padded to 16]`.
//!
//! One order for every output, whatever rows are computed together and however the prompt was
//! cut: positions are walked in runs of 64 aligned to absolute positions, with a running
//! maximum and sum (Milakov and Gimelshein, 2018); a score adds over the head in ascending
//! order, a value over positions in ascending order. Block size does not enter.
#![allow(unsafe_code)]

use crate::lanes::{LANES, Lanes, isa_dispatch, scalar::Scalar};
use crate::math::exp;
use base::Tile;

/// Positions of one step of the running softmax.
pub const RUN: usize = 64;
/// Largest head size.
pub const MAX_HEAD_DIM: usize = 512;
/// Query vectors that pass over the same keys and values together.
const QUERIES: usize = 16;
/// Query vectors of one register tile.
const QT: usize = 4;

/// Whether an instruction set has registers for two groups of positions per query.
trait ScoreTile: Lanes {
    const PAIRS: bool;
}

impl ScoreTile for Scalar {
    const PAIRS: bool = false;
}
#[cfg(target_arch = "x86_64")]
impl ScoreTile for crate::lanes::x86::Avx2 {
    const PAIRS: bool = false;
}
#[cfg(target_arch = "x86_64")]
impl ScoreTile for crate::lanes::x86::Avx512 {
    const PAIRS: bool = true;
}
#[cfg(target_arch = "aarch64")]
impl ScoreTile for crate::lanes::neon::Neon {
    const PAIRS: bool = false;
}

mod sealed {
    /// Only the types below have kernels.
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for u16 {}
}

/// A storage type of cached keys and values: `f32`, or `u16` for bits of BF16.
pub trait KvElem: sealed::Sealed + bytemuck::Pod + Send + Sync {
    /// Rounds a computed value to the type.
    fn from_f32(value: f32) -> Self;
}

/// A storage type that the kernels can read.
trait Stored: KvElem {
    /// Sixteen values as f32.
    ///
    /// # Safety
    /// 16 values must be readable.
    unsafe fn lanes<L: Lanes>(src: *const Self) -> L;
}

impl KvElem for f32 {
    fn from_f32(value: f32) -> Self {
        value
    }
}

impl Stored for f32 {
    #[inline(always)]
    unsafe fn lanes<L: Lanes>(src: *const Self) -> L {
        // SAFETY: the caller's promise.
        unsafe { L::load_at(src) }
    }
}

/// BF16 bits.
impl KvElem for u16 {
    fn from_f32(value: f32) -> Self {
        half::bf16::from_f32(value).to_bits()
    }
}

impl Stored for u16 {
    #[inline(always)]
    unsafe fn lanes<L: Lanes>(src: *const Self) -> L {
        // SAFETY: the caller's promise.
        unsafe { L::load_bf16_at(src) }
    }
}

/// Sizes of one layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Positions in a block; a multiple of 16 that divides 64, or a multiple of 64.
    pub block: usize,
    /// KV heads.
    pub heads: usize,
    /// Values of a head.
    pub dim: usize,
}

impl KvShape {
    /// Values between the rows of two positions.
    pub fn value_stride(&self) -> usize {
        self.dim.next_multiple_of(LANES)
    }

    /// Elements of one block of keys.
    pub fn key_block_len(&self) -> usize {
        self.heads * self.dim * self.block
    }

    /// Elements of one block of values.
    pub fn value_block_len(&self) -> usize {
        self.heads * self.block * self.value_stride()
    }

    fn check(&self) {
        assert!(self.dim > 0 && self.dim <= MAX_HEAD_DIM, "head size {}", self.dim);
        assert!(
            self.block > 0 && self.block.is_multiple_of(LANES),
            "positions in a block: {}",
            self.block
        );
    }
}

/// One layer's keys and values.
#[derive(Debug)]
pub struct KvRef<'a, T> {
    /// Sizes.
    pub shape: KvShape,
    /// `[blocks][heads][dim][block]`.
    pub keys: &'a [T],
    /// `[blocks][heads][block][value_stride]`.
    pub values: &'a [T],
}

impl<T> Clone for KvRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for KvRef<'_, T> {}

/// Stores the key and value rows (`heads * dim` values each) of one position: `slot` counts
/// positions inside `block`, a block number of the cache.
pub fn store<T: KvElem>(
    shape: KvShape,
    (keys, values): (&mut [T], &mut [T]),
    (block, slot): (usize, usize),
    (key, value): (&[f32], &[f32]),
) {
    assert!(slot < shape.block && key.len() == shape.heads * shape.dim && key.len() == value.len());
    let keys = &mut keys[block * shape.key_block_len()..][..shape.key_block_len()];
    let values = &mut values[block * shape.value_block_len()..][..shape.value_block_len()];
    for (index, key) in key.iter().enumerate() {
        keys[index * shape.block + slot] = T::from_f32(*key);
    }
    for (head, value) in value.chunks_exact(shape.dim).enumerate() {
        let start = (head * shape.block + slot) * shape.value_stride();
        for (out, value) in values[start..][..shape.dim].iter_mut().zip(value) {
            *out = T::from_f32(*value);
        }
    }
}

/// Attention of consecutive positions of one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// Rotated queries `[rows, heads * dim]` of the sequence's rows in this step.
    pub q: &'a [f32],
    /// Query heads; a multiple of the KV heads, consecutive heads sharing one KV head.
    pub heads: usize,
    /// Position of the first row.
    pub position: usize,
    /// The sequence's blocks, in order of positions.
    pub blocks: &'a [u32],
    /// Factor of the scores, usually `1 / sqrt(dim)`.
    pub scale: f32,
    /// Positions a query sees, itself included; `usize::MAX` for all before it.
    pub window: usize,
}

/// Computes the outputs of `tile`: rows of the sequence by the columns of the query heads that
/// share one KV head (`heads / kv heads * dim` columns).
pub fn attention<T: KvElem>(
    isa: crate::Isa,
    query: &Query<'_>,
    kv: KvRef<'_, T>,
    tile: &mut Tile<'_, f32>,
) {
    kv.shape.check();
    let group = query.heads / kv.shape.heads;
    assert!(group * kv.shape.heads == query.heads, "query heads share KV heads evenly");
    assert!(tile.cols().len() == group * kv.shape.dim, "one KV head's columns");
    let last = query.position + tile.rows().end;
    assert!(last <= query.blocks.len() * kv.shape.block, "positions outside the block table");
    let blocks = kv.keys.len() / kv.shape.key_block_len();
    assert!(kv.values.len() >= blocks * kv.shape.value_block_len(), "values for every block");
    assert!(query.blocks.iter().all(|&b| (b as usize) < blocks), "block outside the cache");
    assert!(query.q.len() >= tile.rows().end * query.heads * kv.shape.dim, "a query per row");
    dispatch(isa, query, kv, tile);
}

fn dispatch<T: KvElem>(
    isa: crate::Isa,
    query: &Query<'_>,
    kv: KvRef<'_, T>,
    tile: &mut Tile<'_, f32>,
) {
    // The two storage types are spelt out because the shells cannot be generic.
    if let (Ok(keys), Ok(values)) =
        (bytemuck::try_cast_slice(kv.keys), bytemuck::try_cast_slice(kv.values))
        && size_of::<T>() == 4
    {
        attend_f32(isa, query, KvRef { shape: kv.shape, keys, values }, tile);
    } else {
        let (keys, values) = (bytemuck::cast_slice(kv.keys), bytemuck::cast_slice(kv.values));
        attend_bf16(isa, query, KvRef { shape: kv.shape, keys, values }, tile);
    }
}

isa_dispatch! {
    fn attend_f32(query: &Query<'_>, kv: KvRef<'_, f32>, tile: &mut Tile<'_, f32>) = attend_body
}

isa_dispatch! {
    fn attend_bf16(query: &Query<'_>, kv: KvRef<'_, u16>, tile: &mut Tile<'_, f32>) = attend_body_bf16
}

#[inline(always)]
fn attend_body_bf16<L: ScoreTile>(query: &Query<'_>, kv: KvRef<'_, u16>, tile: &mut Tile<'_, f32>) {
    attend::<L, u16>(query, kv, tile);
}

#[inline(always)]
fn attend_body<L: ScoreTile>(query: &Query<'_>, kv: KvRef<'_, f32>, tile: &mut Tile<'_, f32>) {
    attend::<L, f32>(query, kv, tile);
}

/// A query vector on its way through the runs.
#[derive(Clone, Copy)]
struct State {
    /// Row and column of its first output in the matrix.
    row: usize,
    head: usize,
    position: usize,
    max: f32,
    sum: f32,
    /// Weights of the current run, and the factor of what was summed before.
    probs: [f32; RUN],
    rescale: f32,
}

#[inline(always)]
fn attend<L: ScoreTile, T: Stored>(query: &Query<'_>, kv: KvRef<'_, T>, tile: &mut Tile<'_, f32>) {
    let dim = kv.shape.dim;
    let group = query.heads / kv.shape.heads;
    let kv_head = tile.cols().start / (group * dim);
    let total = tile.rows().len() * group;
    for first in (0..total).step_by(QUERIES) {
        let count = QUERIES.min(total - first);
        let mut states = [None; QUERIES];
        for (i, state) in states[..count].iter_mut().enumerate() {
            let row = tile.rows().start + (first + i) / group;
            *state = Some(State {
                row,
                head: kv_head * group + (first + i) % group,
                position: query.position + row,
                max: f32::NEG_INFINITY,
                sum: 0.0,
                probs: [0.0; RUN],
                rescale: 0.0,
            });
        }
        let mut states = states.map(|s| s.unwrap_or(EMPTY));
        let mut outs = [0.0; QUERIES * MAX_HEAD_DIM];
        walk::<L, T>(query, kv, kv_head, &mut states[..count], &mut outs);
        for (state, out) in states[..count].iter().zip(outs.chunks_exact(MAX_HEAD_DIM)) {
            let column = (state.head - kv_head * group) * dim;
            for (to, from) in tile.row_mut(state.row)[column..][..dim].iter_mut().zip(out) {
                *to = from / state.sum;
            }
        }
    }
}

const EMPTY: State = State {
    row: 0,
    head: 0,
    position: 0,
    max: f32::NEG_INFINITY,
    sum: 0.0,
    probs: [0.0; RUN],
    rescale: 0.0,
};

/// All runs that any of the queries sees.
#[inline(always)]
fn walk<L: ScoreTile, T: Stored>(
    query: &Query<'_>,
    kv: KvRef<'_, T>,
    kv_head: usize,
    states: &mut [State],
    outs: &mut [f32; QUERIES * MAX_HEAD_DIM],
) {
    let last = states[states.len() - 1].position;
    let oldest = (states[0].position + 1).saturating_sub(query.window);
    for start in (oldest / RUN * RUN..=last).step_by(RUN) {
        let run = RunOf { query, kv, kv_head, start, len: RUN.min(last + 1 - start) };
        for tile in states.chunks_mut(QT) {
            score::<L, T>(run, tile);
            for state in tile.iter_mut() {
                soften::<L>(state, start, query.window);
            }
        }
        for (tile, outs) in states.chunks(QT).zip(outs.chunks_mut(QT * MAX_HEAD_DIM)) {
            weigh::<L, T>(run, tile, outs);
        }
    }
}

/// Where a run of one KV head lies, for the queries that pass over it.
#[derive(Clone, Copy)]
struct RunOf<'a, T> {
    query: &'a Query<'a>,
    kv: KvRef<'a, T>,
    kv_head: usize,
    /// Positions `start..start + len`.
    start: usize,
    len: usize,
}

impl<T> RunOf<'_, T> {
    /// Index of the cache block of `position`, and of the one after it (or the same at the end).
    #[inline(always)]
    fn block(&self, position: usize) -> (usize, usize) {
        let at = position / self.kv.shape.block;
        let next = (at + 1).min(self.query.blocks.len() - 1);
        (self.query.blocks[at] as usize, self.query.blocks[next] as usize)
    }
}

/// Scaled scores of up to `QT` queries against a run, into their `probs`.
#[inline(always)]
fn score<L: ScoreTile, T: Stored>(run: RunOf<'_, T>, tile: &mut [State]) {
    match tile.len() {
        1 => score_queries::<L, T, 1>(run, tile),
        2 => score_queries::<L, T, 2>(run, tile),
        _ => score_queries::<L, T, QT>(run, tile),
    }
}

#[inline(always)]
fn score_queries<L: ScoreTile, T: Stored, const Q: usize>(run: RunOf<'_, T>, tile: &mut [State]) {
    let KvShape { block, dim, .. } = run.kv.shape;
    let stride = run.query.heads * dim;
    // Missing queries of the tile repeat the last; their results are dropped.
    let q: [*const f32; Q] = std::array::from_fn(|i| {
        let state = &tile[i.min(tile.len() - 1)];
        run.query.q[state.row * stride + state.head * dim..][..dim].as_ptr()
    });
    let mut first = 0;
    while first < run.len {
        // Two groups of lanes halve the time that a sum waits for itself, where registers allow.
        let in_block = block - (run.start + first) % block;
        let pair = L::PAIRS && run.len - first > LANES && in_block >= 2 * LANES;
        first += match pair {
            true => score_groups::<L, T, Q, 2>(run, q, first, tile),
            false => score_groups::<L, T, Q, 1>(run, q, first, tile),
        };
    }
}

/// Scores for `G * 16` positions of one block, from the `first` of the run on; gives how many.
#[inline(always)]
fn score_groups<L: Lanes, T: Stored, const Q: usize, const G: usize>(
    run: RunOf<'_, T>,
    q: [*const f32; Q],
    first: usize,
    tile: &mut [State],
) -> usize {
    let KvShape { block, dim, .. } = run.kv.shape;
    let position = run.start + first;
    let (at, next) = run.block(position);
    let inside = run.kv_head * dim * block + position % block;
    let head = at * run.kv.shape.key_block_len() + inside;
    assert!(head + (dim - 1) * block + G * LANES <= run.kv.keys.len());
    let keys = run.kv.keys[head..].as_ptr();
    let ahead = run.kv.keys.as_ptr().wrapping_add(next * run.kv.shape.key_block_len() + inside);
    let mut acc = [[L::splat(0.0); G]; Q];
    for d in 0..dim {
        L::prefetch(ahead.wrapping_add(d * block));
        // SAFETY: checked above: `G * 16` keys are readable at every `d`, and q has `dim`.
        unsafe {
            for g in 0..G {
                let k = T::lanes::<L>(keys.add(d * block + g * LANES));
                for (acc, q) in acc.iter_mut().zip(q) {
                    acc[g] = L::splat(*q.add(d)).mul_add(k, acc[g]);
                }
            }
        }
    }
    for (state, acc) in tile.iter_mut().zip(acc) {
        let (probs, _) = state.probs.as_chunks_mut::<LANES>();
        for (probs, acc) in probs[first / LANES..].iter_mut().zip(acc) {
            acc.mul(L::splat(run.query.scale)).store(probs);
        }
    }
    G * LANES
}

/// One step of the running softmax: scores in `probs` become weights.
#[inline(always)]
fn soften<L: Lanes>(state: &mut State, start: usize, window: usize) {
    let from = (state.position + 1).saturating_sub(window).saturating_sub(start).min(RUN);
    let to = (state.position + 1).saturating_sub(start).min(RUN);
    state.rescale = 1.0;
    if from >= to {
        state.probs = [0.0; RUN];
        return;
    }
    state.probs[..from].fill(f32::NEG_INFINITY);
    state.probs[to..].fill(f32::NEG_INFINITY);
    let (probs, _) = state.probs.as_chunks_mut::<LANES>();
    let mut largest = L::load(&probs[0]);
    for chunk in &probs[1..] {
        largest = largest.max(L::load(chunk));
    }
    let max = largest.max_lane();
    let max = if max > state.max { max } else { state.max };
    let mut sum = L::splat(0.0);
    for chunk in probs {
        let weights = exp(L::load(chunk).sub(L::splat(max)));
        weights.store(chunk);
        sum = sum.add(weights);
    }
    let mut rescale = [0.0; LANES];
    exp(L::splat(state.max - max)).store(&mut rescale);
    state.rescale = rescale[0];
    state.sum = state.sum * state.rescale + sum.sum();
    state.max = max;
}

/// Adds a run's weighted values to the outputs of up to `QT` queries.
#[inline(always)]
fn weigh<L: Lanes, T: Stored>(run: RunOf<'_, T>, tile: &[State], outs: &mut [f32]) {
    match tile.len() {
        1 => weigh_queries::<L, T, 1>(run, tile, outs),
        2 => weigh_queries::<L, T, 2>(run, tile, outs),
        _ => weigh_queries::<L, T, QT>(run, tile, outs),
    }
}

#[inline(always)]
fn weigh_queries<L: Lanes, T: Stored, const Q: usize>(
    run: RunOf<'_, T>,
    tile: &[State],
    outs: &mut [f32],
) {
    let stride = run.kv.shape.value_stride();
    let mut d = 0;
    while d < stride {
        d += match stride - d >= 4 * LANES {
            true => weigh_columns::<L, T, Q, 4>(run, d, tile, outs),
            false => weigh_columns::<L, T, Q, 1>(run, d, tile, outs),
        };
    }
}

/// `weigh` for `W * 16` columns of the head beginning with column `d`; gives how many.
#[inline(always)]
fn weigh_columns<L: Lanes, T: Stored, const Q: usize, const W: usize>(
    run: RunOf<'_, T>,
    d: usize,
    tile: &[State],
    outs: &mut [f32],
) -> usize {
    let (block, stride) = (run.kv.shape.block, run.kv.shape.value_stride());
    let probs: [&[f32; RUN]; Q] = std::array::from_fn(|i| &tile[i.min(tile.len() - 1)].probs);
    let mut acc = [[L::splat(0.0); W]; Q];
    for (i, (acc, state)) in acc.iter_mut().zip(tile).enumerate() {
        let before = &outs[i * MAX_HEAD_DIM + d..][..W * LANES];
        for (acc, before) in acc.iter_mut().zip(before.as_chunks::<LANES>().0) {
            *acc = L::load(before).mul(L::splat(state.rescale));
        }
    }
    for j in 0..run.len {
        let position = run.start + j;
        let (at, next) = run.block(position);
        let inside = (run.kv_head * block + position % block) * stride + d;
        let row = &run.kv.values[at * run.kv.shape.value_block_len() + inside..][..W * LANES];
        let ahead = next * run.kv.shape.value_block_len() + inside;
        for line in (0..W * LANES).step_by(64 / size_of::<T>()) {
            L::prefetch(run.kv.values.as_ptr().wrapping_add(ahead + line));
        }
        for w in 0..W {
            // SAFETY: `row` holds W * 16 values.
            let value = unsafe { T::lanes::<L>(row.as_ptr().add(w * LANES)) };
            for (acc, probs) in acc.iter_mut().zip(probs) {
                acc[w] = L::splat(probs[j]).mul_add(value, acc[w]);
            }
        }
    }
    for (i, acc) in acc.iter().enumerate().take(tile.len()) {
        let out = &mut outs[i * MAX_HEAD_DIM + d..][..W * LANES];
        for (acc, out) in acc.iter().zip(out.as_chunks_mut::<LANES>().0) {
            acc.store(out);
        }
    }
    W * LANES
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
