//! Weighted sums of values.
#![allow(unsafe_code)]

use super::mac::{Mac, Tiles};
use super::room::{ROW, Room};
use crate::lanes::{LANES, Lanes};

/// Blocks of one run.
pub(super) const BLOCKS: usize = 8;

/// The values of one head in consecutive blocks.
#[derive(Clone, Copy)]
pub(super) struct ValueRun {
    /// `[units of positions][stride]` of each block.
    pub units: [*const u32; BLOCKS],
    /// What is read after each block, of the same size.
    pub ahead: [*const u8; BLOCKS],
    /// Units of positions in a block, and in all blocks together.
    pub per_block: usize,
    pub len: usize,
    /// Units of a position.
    pub stride: usize,
}

/// Adds the run's values times the weights in `room.scores` from column `at` on (an even one) to
/// `room.sums` of `count` queries.
///
/// # Safety
/// Each of the blocks that `len` takes must hold `per_block * stride` units, or as many rows as
/// are left.
#[inline(always)]
pub(super) unsafe fn weigh<M: Mac>(run: &ValueRun, (count, at): (usize, usize), room: &mut Room) {
    assert!(run.len <= BLOCKS * run.per_block && at + run.len * M::WIDTH <= ROW);
    let mut d = 0;
    while d < run.stride {
        let left = run.stride - d;
        // SAFETY: the caller's promise, and the columns that are left.
        d += unsafe {
            match M::Lanes::WIDE {
                true if count <= 2 && left >= 8 * LANES => slice::<M, 8>(run, (count, at, d), room),
                true if left >= 4 * LANES => slice::<M, 4>(run, (count, at, d), room),
                _ => slice::<M, 2>(run, (count, at, d), room),
            }
        };
    }
}

/// `weigh` for `W * 16` columns of the head from `d` on; gives how many.
///
/// # Safety
/// As `weigh`, and so many columns must be left.
#[inline(always)]
unsafe fn slice<M: Mac, const W: usize>(
    run: &ValueRun,
    (count, at, d): (usize, usize, usize),
    room: &mut Room,
) -> usize {
    let mut first = 0;
    while first < count {
        let width = match count - first {
            1 => 1,
            2 | 3 => 2,
            // Eight groups of lanes for more than two queries do not fit into registers.
            _ if M::Lanes::WIDE && W <= 4 => 4,
            _ => 2,
        };
        let weights: &[M::Factor] =
            bytemuck::cast_slice(&room.scores[first * ROW..][..width * ROW]);
        let weights = weights[at / M::WIDTH..].as_ptr();
        let sums = room.sums[first * run.stride..][..width * run.stride].as_mut_ptr();
        // SAFETY: `width` rows of weights and of sums are there, checked by the slices, and `len`
        // weights behind `at`, checked by `weigh`; the caller's promise.
        unsafe {
            match width {
                1 => tile::<M, 1, W>(run, d, weights, sums.add(d)),
                2 => tile::<M, 2, W>(run, d, weights, sums.add(d)),
                _ => tile::<M, 4, W>(run, d, weights, sums.add(d)),
            }
        }
        first += width;
    }
    W * LANES
}

/// # Safety
/// `units` must hold `len` rows of `stride` units, of which `d + W * 16` are in a row; `weights`
/// must hold `len` factors in each of `Q` rows, [`ROW`] values apart; `sums` must have room for
/// `Q` rows of `W * 16`, `stride` apart.
#[inline(always)]
unsafe fn tile<M: Mac, const Q: usize, const W: usize>(
    run: &ValueRun,
    d: usize,
    weights: *const M::Factor,
    sums: *mut f32,
) {
    let row = ROW * size_of::<f32>() / size_of::<M::Factor>();
    let mut acc = [[M::Lanes::splat(0.0); W]; Q];
    for (i, acc) in acc.iter_mut().enumerate() {
        for (w, acc) in acc.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *acc = unsafe { M::Lanes::load_at(sums.add(i * run.stride + w * LANES)) };
        }
    }
    let (mut j, mut block) = (0, 0);
    while j < run.len {
        let here = run.per_block.min(run.len - j);
        let ahead = run.ahead[block].wrapping_add(4 * d);
        for u in 0..here {
            let at = u * run.stride;
            for w in 0..W {
                M::Lanes::prefetch(ahead.wrapping_add(4 * (at + w * LANES)));
            }
            // SAFETY: `u` is a row of the block, `j + u < len`; the caller's promise.
            unsafe {
                let from = run.units[block].add(at + d);
                let mut units = [M::load(from); W];
                for (w, units) in units.iter_mut().enumerate().skip(1) {
                    *units = M::load(from.add(w * LANES));
                }
                for (i, acc) in acc.iter_mut().enumerate() {
                    let weight = M::splat(weights.add(i * row + j + u));
                    for (acc, units) in acc.iter_mut().zip(units) {
                        *acc = M::mac(weight, units, *acc);
                    }
                }
            }
        }
        j += here;
        block += 1;
    }
    for (i, acc) in acc.into_iter().enumerate() {
        for (w, acc) in acc.into_iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { acc.store_at(sums.add(i * run.stride + w * LANES)) };
        }
    }
}
