//! Scores: queries times keys, sixteen positions at a time.
#![allow(unsafe_code)]

use super::mac::{Mac, Tiles};
use super::scratch::{AttentionScratch, ROW};
use super::source::KvSource;
use crate::kv::KvLayout;
use crate::lanes::{LANES, Lanes};

/// The keys of one head of one block.
#[derive(Clone, Copy)]
pub(super) struct KeyBlock {
    /// `[steps][block]` units.
    pub units: *const u8,
    /// `[groups][block]`, of types that have any.
    pub scales: *const u8,
    /// The data read next, of the same size.
    pub ahead: *const u8,
    /// Units of a head, and positions of the block.
    pub steps: usize,
    pub block: usize,
    /// Factor of the scores.
    pub scale: f32,
}

/// Packs the query vectors for `scores`: `[steps][queries]` for each register tile.
#[inline(always)]
pub(super) fn pack<'a, M: Mac>(
    layout: &KvLayout,
    queries: impl ExactSizeIterator<Item = &'a [f32]>,
    scratch: &mut AttentionScratch,
) {
    let steps = layout.dim.div_ceil(M::WIDTH);
    let count = queries.len();
    let factors: &mut [M::Factor] = bytemuck::cast_slice_mut(&mut scratch.factors[..]);
    let row: &mut [M::Factor] = bytemuck::cast_slice_mut(&mut scratch.row[..]);
    let (mut first, mut width) = (0, tile_width::<M>(count));
    for (i, query) in queries.enumerate() {
        if i == first + width {
            first = i;
            width = tile_width::<M>(count - i);
        }
        M::factors(query, row);
        for step in 0..steps {
            factors[first * steps + step * width + i - first] = row[step];
        }
    }
}

/// Number of queries of the next register tile, with `left` queries left. The last tile may be
/// padded.
#[inline(always)]
fn tile_width<M: Mac>(left: usize) -> usize {
    match left {
        1 | 2 => left,
        3 | 4 => 4,
        12.. if M::Lanes::WIDE => 12,
        _ if M::Lanes::WIDE => 8,
        6.. => 6,
        _ => 4,
    }
}

/// Scores of the packed queries against the `positions` (a multiple of 16) positions of a block,
/// into `scratch.scores` from column `at` on.
///
/// # Safety
/// `keys` must hold `steps * block` units and their scales.
#[inline(always)]
pub(super) unsafe fn scores<S: KvSource>(
    keys: KeyBlock,
    (count, positions, at): (usize, usize, usize),
    scratch: &mut AttentionScratch,
) {
    assert!(positions <= keys.block && at + positions <= ROW);
    let mut first = 0;
    while first < count {
        let width = tile_width::<S::Mac>(count - first);
        let factors: &[<S::Mac as Mac>::Factor] = bytemuck::cast_slice(&scratch.factors[..]);
        let factors = factors[first * keys.steps..][..width * keys.steps].as_ptr();
        let scores = scratch.scores[first * ROW..][..width * ROW].as_mut_ptr();
        let tile = (factors, scores.wrapping_add(at), positions);
        // SAFETY: `width` queries' factors and rows of scores are there, checked by the slices.
        unsafe {
            match width {
                1 => columns::<S, 1>(keys, tile),
                2 => columns::<S, 2>(keys, tile),
                4 => columns::<S, 4>(keys, tile),
                12 if <S::Mac as Mac>::Lanes::WIDE => columns::<S, 12>(keys, tile),
                _ if <S::Mac as Mac>::Lanes::WIDE => columns::<S, 8>(keys, tile),
                _ => columns::<S, 6>(keys, tile),
            }
        }
        first += width;
    }
}

/// # Safety
/// As [`tile`], for all `positions`.
#[inline(always)]
unsafe fn columns<S: KvSource, const Q: usize>(
    keys: KeyBlock,
    (factors, scores, positions): (*const <S::Mac as Mac>::Factor, *mut f32, usize),
) {
    let mut p = 0;
    while p < positions {
        // SAFETY: the caller's promise, and `p` plus the tile's positions is at most `positions`.
        unsafe {
            if <S::Mac as Mac>::Lanes::WIDE && positions - p >= 2 * LANES {
                tile::<S, Q, 2>(keys, factors, scores.add(p), p);
                p += 2 * LANES;
            } else {
                tile::<S, Q, 1>(keys, factors, scores.add(p), p);
                p += LANES;
            }
        }
    }
}

/// Scores of `Q` queries for `G * 16` positions from `p` on.
///
/// # Safety
/// `keys` must hold `steps * block` units and their scales, `p + G * 16` of a row of `block`;
/// `factors` must hold `[steps][Q]`, and `scores` have space for `Q` rows of `G * 16`, [`ROW`]
/// apart.
#[inline(always)]
unsafe fn tile<S: KvSource, const Q: usize, const G: usize>(
    keys: KeyBlock,
    factors: *const <S::Mac as Mac>::Factor,
    scores: *mut f32,
    p: usize,
) {
    type LanesOf<S> = <<S as KvSource>::Mac as Mac>::Lanes;
    let mut acc = [[LanesOf::<S>::splat(0.0); G]; Q];
    for first in (0..keys.steps).step_by(S::STEPS) {
        let group = first / S::STEPS * keys.block + p;
        // SAFETY: `first < steps`, so the group has scales; the caller's promise.
        let mut scales = [unsafe { S::key_scales(keys.scales, group) }; G];
        for (g, scales) in scales.iter_mut().enumerate().skip(1) {
            // SAFETY: as above.
            *scales = unsafe { S::key_scales(keys.scales, group + g * LANES) };
        }
        for step in first..(first + S::STEPS).min(keys.steps) {
            let at = step * keys.block + p;
            prefetch::<S, G>(keys.ahead, at);
            // SAFETY: `step < steps`; the caller's promise.
            unsafe {
                let from = keys.units.add(S::BYTES * at);
                let mut units = [S::load(from, scales[0]); G];
                for (g, units) in units.iter_mut().enumerate().skip(1) {
                    *units = S::load(from.add(S::BYTES * g * LANES), scales[g]);
                }
                for (i, acc) in acc.iter_mut().enumerate() {
                    let factor = S::Mac::splat(factors.add(step * Q + i));
                    for (acc, units) in acc.iter_mut().zip(units) {
                        *acc = S::Mac::mac(factor, units, *acc);
                    }
                }
            }
        }
    }
    for (i, acc) in acc.into_iter().enumerate() {
        for (g, acc) in acc.into_iter().enumerate() {
            let scaled = acc.mul(LanesOf::<S>::splat(keys.scale));
            // SAFETY: the caller's promise.
            unsafe { scaled.store_at(scores.add(i * ROW + g * LANES)) };
        }
    }
}

/// Prefetches the lines that begin with `G * 16` units at index `at` of the data that is read next.
#[inline(always)]
fn prefetch<S: KvSource, const G: usize>(ahead: *const u8, at: usize) {
    let at = S::BYTES * at;
    if S::BYTES * LANES == 64 || at.is_multiple_of(64) {
        <S::Mac as Mac>::Lanes::prefetch(ahead.wrapping_add(at));
    }
    if G > 1 && S::BYTES * LANES == 64 {
        <S::Mac as Mac>::Lanes::prefetch(ahead.wrapping_add(at + 64));
    }
}
