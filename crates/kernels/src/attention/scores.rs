//! Scores: queries times keys, sixteen positions at a time.
#![allow(unsafe_code)]

use super::mac::{Mac, Tiles};
use super::room::{ROW, Room};
use crate::kv::KvLayout;
use crate::lanes::{LANES, Lanes};

/// The keys of one head of one block.
#[derive(Clone, Copy)]
pub(super) struct KeyBlock {
    /// `[steps][block]` units.
    pub units: *const u32,
    /// What is read next, of the same size.
    pub ahead: *const u8,
    /// Units of a head, and positions of the block.
    pub steps: usize,
    pub block: usize,
    /// Factor of the scores.
    pub scale: f32,
}

/// Lays the query vectors out as `scores` reads them: for each register tile `[steps][queries]`.
#[inline(always)]
pub(super) fn pack<'a, M: Mac>(
    layout: &KvLayout,
    queries: impl ExactSizeIterator<Item = &'a [f32]>,
    room: &mut Room,
) {
    let steps = layout.dim.div_ceil(M::WIDTH);
    let count = queries.len();
    let factors: &mut [M::Factor] = bytemuck::cast_slice_mut(&mut room.factors[..]);
    let row: &mut [M::Factor] = bytemuck::cast_slice_mut(&mut room.row[..]);
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

/// Queries of the next register tile where `left` are left; a tile that is not full computes
/// more than is wanted.
#[inline(always)]
fn tile_width<M: Mac>(left: usize) -> usize {
    match left {
        1 | 2 => left,
        3 | 4 => 4,
        _ if M::Lanes::WIDE => 8,
        _ => 4,
    }
}

/// Scores of the packed queries against the `positions` (a multiple of 16) positions of a block,
/// into `room.scores` from column `at` on.
///
/// # Safety
/// `keys.units` must hold `steps * block` units.
#[inline(always)]
pub(super) unsafe fn scores<M: Mac>(
    keys: KeyBlock,
    (count, positions, at): (usize, usize, usize),
    room: &mut Room,
) {
    assert!(positions <= keys.block && at + positions <= ROW);
    let mut first = 0;
    while first < count {
        let width = tile_width::<M>(count - first);
        let factors: &[M::Factor] = bytemuck::cast_slice(&room.factors[..]);
        let factors = factors[first * keys.steps..][..width * keys.steps].as_ptr();
        let scores = room.scores[first * ROW..][..width * ROW].as_mut_ptr();
        let tile = (factors, scores.wrapping_add(at), positions);
        // SAFETY: `width` queries' factors and rows of scores are there, checked by the slices.
        unsafe {
            match width {
                1 => columns::<M, 1>(keys, tile),
                2 => columns::<M, 2>(keys, tile),
                4 => columns::<M, 4>(keys, tile),
                _ => columns::<M, 8>(keys, tile),
            }
        }
        first += width;
    }
}

/// # Safety
/// As [`tile`], for all `positions`.
#[inline(always)]
unsafe fn columns<M: Mac, const Q: usize>(
    keys: KeyBlock,
    (factors, scores, positions): (*const M::Factor, *mut f32, usize),
) {
    let mut p = 0;
    while p < positions {
        // SAFETY: the caller's promise, and `p` plus the tile's positions is at most `positions`.
        unsafe {
            if M::Lanes::WIDE && positions - p >= 2 * LANES {
                tile::<M, Q, 2>(keys, factors, scores.add(p), p);
                p += 2 * LANES;
            } else {
                tile::<M, Q, 1>(keys, factors, scores.add(p), p);
                p += LANES;
            }
        }
    }
}

/// Scores of `Q` queries for `G * 16` positions from `p` on.
///
/// # Safety
/// `keys.units` must hold `steps * block` units, of which `p + G * 16` are in a row of `block`;
/// `factors` must hold `[steps][Q]`, and `scores` have room for `Q` rows of `G * 16`, [`ROW`]
/// apart.
#[inline(always)]
unsafe fn tile<M: Mac, const Q: usize, const G: usize>(
    keys: KeyBlock,
    factors: *const M::Factor,
    scores: *mut f32,
    p: usize,
) {
    let mut acc = [[M::Lanes::splat(0.0); G]; Q];
    for step in 0..keys.steps {
        let at = step * keys.block + p;
        M::Lanes::prefetch(keys.ahead.wrapping_add(4 * at));
        if G > 1 {
            M::Lanes::prefetch(keys.ahead.wrapping_add(4 * (at + LANES)));
        }
        // SAFETY: `step < steps`; the caller's promise.
        unsafe {
            let mut units = [M::load(keys.units.add(at)); G];
            for (g, units) in units.iter_mut().enumerate().skip(1) {
                *units = M::load(keys.units.add(at + g * LANES));
            }
            for (i, acc) in acc.iter_mut().enumerate() {
                let factor = M::splat(factors.add(step * Q + i));
                for (acc, units) in acc.iter_mut().zip(units) {
                    *acc = M::mac(factor, units, *acc);
                }
            }
        }
    }
    for (i, acc) in acc.into_iter().enumerate() {
        for (g, acc) in acc.into_iter().enumerate() {
            let scaled = acc.mul(M::Lanes::splat(keys.scale));
            // SAFETY: the caller's promise.
            unsafe { scaled.store_at(scores.add(i * ROW + g * LANES)) };
        }
    }
}
