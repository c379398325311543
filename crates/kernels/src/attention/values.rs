//! Weighted sums of values.
#![allow(unsafe_code)]

use super::mac::{Mac, Tiles};
use super::scratch::{AttentionScratch, ROW};
use super::source::KvSource;
use crate::kv::GROUP;
use crate::lanes::{LANES, Lanes};

/// Blocks of one run.
pub(super) const BLOCKS: usize = 8;

/// The values of one head in consecutive blocks.
#[derive(Clone, Copy)]
pub(super) struct ValueRun {
    /// `[units of positions][stride]` of each block.
    pub units: [*const u8; BLOCKS],
    /// The data read after each block, of the same size.
    pub ahead: [*const u8; BLOCKS],
    /// Offset of the scales after the units, `[positions][groups]`, for types with scales.
    pub scales: usize,
    pub groups: usize,
    /// Units of positions in a block, and in all blocks together.
    pub per_block: usize,
    pub len: usize,
    /// Units of a position.
    pub stride: usize,
}

/// Adds the values of the run, times the weights in `scratch.scores` from the even column `at` on,
/// to `scratch.sums` of `count` queries.
///
/// # Safety
/// Each of the blocks of `len` units of positions must hold `per_block * stride` units, or the rows
/// that are left, and their scales.
#[inline(always)]
pub(super) unsafe fn weigh<S: KvSource>(
    run: &ValueRun,
    (count, at): (usize, usize),
    scratch: &mut AttentionScratch,
) {
    assert!(run.len <= BLOCKS * run.per_block && at + run.len * S::Mac::WIDTH <= ROW);
    let wide = <S::Mac as Mac>::Lanes::WIDE;
    let mut d = 0;
    while d < run.stride {
        let left = run.stride - d;
        // SAFETY: the caller's promise, and the columns that are left.
        d += unsafe {
            match count {
                1 | 2 if wide && left >= 8 * LANES => slice::<S, 8>(run, (count, at, d), scratch),
                // More queries per load where loads are expensive.
                5.. if wide && S::CONVERTS => slice::<S, 2>(run, (count, at, d), scratch),
                _ if wide && left >= 4 * LANES => slice::<S, 4>(run, (count, at, d), scratch),
                3.. if !wide => slice::<S, 1>(run, (count, at, d), scratch),
                _ => slice::<S, 2>(run, (count, at, d), scratch),
            }
        };
    }
}

/// `weigh` for `W * 16` columns of the head from `d` on; returns their number.
///
/// # Safety
/// As for `weigh`, and as many columns must be left.
#[inline(always)]
unsafe fn slice<S: KvSource, const W: usize>(
    run: &ValueRun,
    (count, at, d): (usize, usize, usize),
    scratch: &mut AttentionScratch,
) -> usize {
    let wide = <S::Mac as Mac>::Lanes::WIDE;
    let mut first = 0;
    while first < count {
        // As many accumulators as fit into registers.
        let width = match count - first {
            12.. if wide && W == 2 => 12,
            8.. if wide && W == 2 => 8,
            6.. if !wide && W == 1 => 6,
            4.. if wide && W <= 4 || W == 1 => 4,
            2.. => 2,
            _ => 1,
        };
        let weights = &scratch.scores[first * ROW..][..width * ROW];
        let weights: &[<S::Mac as Mac>::Factor] = bytemuck::cast_slice(weights);
        let weights = weights[at / S::Mac::WIDTH..].as_ptr();
        let sums = scratch.sums[first * run.stride..][..width * run.stride].as_mut_ptr();
        // SAFETY: `width` rows of weights and of sums are there, checked by the slices, and `len`
        // weights behind `at`, checked by `weigh`; the caller's promise.
        unsafe {
            let sums = sums.add(d);
            match width {
                1 => tile::<S, 1, W>(run, d, weights, sums),
                2 => tile::<S, 2, W>(run, d, weights, sums),
                4 if wide && W <= 4 || W == 1 => tile::<S, 4, W>(run, d, weights, sums),
                6 if !wide && W == 1 => tile::<S, 6, W>(run, d, weights, sums),
                8 if wide && W == 2 => tile::<S, 8, W>(run, d, weights, sums),
                12 if wide && W == 2 => tile::<S, 12, W>(run, d, weights, sums),
                _ => unreachable!("{width} queries by {W} groups of lanes"),
            }
        }
        first += width;
    }
    W * LANES
}

/// # Safety
/// `units` must hold `len` rows of `stride` units and their scales, `d + W * 16` of a row;
/// `weights` must hold `len` factors in each of `Q` rows, [`ROW`] values apart; `sums` must have
/// space for `Q` rows of `W * 16`, `stride` apart.
#[inline(always)]
unsafe fn tile<S: KvSource, const Q: usize, const W: usize>(
    run: &ValueRun,
    d: usize,
    weights: *const <S::Mac as Mac>::Factor,
    sums: *mut f32,
) {
    type LanesOf<S> = <<S as KvSource>::Mac as Mac>::Lanes;
    let row = ROW * size_of::<f32>() / size_of::<<S::Mac as Mac>::Factor>();
    let mut acc = [[LanesOf::<S>::splat(0.0); W]; Q];
    for (i, acc) in acc.iter_mut().enumerate() {
        for (w, acc) in acc.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *acc = unsafe { LanesOf::<S>::load_at(sums.add(i * run.stride + w * LANES)) };
        }
    }
    let (mut j, mut block) = (0, 0);
    while j < run.len {
        let here = run.per_block.min(run.len - j);
        for u in 0..here {
            let at = S::BYTES * (u * run.stride + d);
            for line in (0..S::BYTES * W * LANES).step_by(64) {
                LanesOf::<S>::prefetch(run.ahead[block].wrapping_add(at + line));
            }
            // SAFETY: `u` is a row of the block, `j + u < len`; the caller's promise.
            unsafe {
                let units = load_row::<S, W>(run.units[block], at, run, (u, d));
                for (i, acc) in acc.iter_mut().enumerate() {
                    let weight = S::Mac::splat(weights.add(i * row + j + u));
                    for (acc, units) in acc.iter_mut().zip(units) {
                        *acc = S::Mac::mac(weight, units, *acc);
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

/// `W * 16` units of row `u` from column `d` (a whole group's first) on, `at` bytes behind `units`.
///
/// # Safety
/// The units and their scales must be readable.
#[inline(always)]
unsafe fn load_row<S: KvSource, const W: usize>(
    units: *const u8,
    at: usize,
    run: &ValueRun,
    (u, d): (usize, usize),
) -> [<S::Mac as Mac>::Units; W] {
    // SAFETY: the caller's promise.
    unsafe {
        let (from, scales) = (units.add(at), units.wrapping_add(run.scales));
        let group = u * run.groups + d / GROUP;
        let mut scale = S::value_scale(scales, group);
        let mut row = [S::load(from, scale); W];
        for (w, units) in row.iter_mut().enumerate().skip(1) {
            if (w * LANES).is_multiple_of(GROUP) {
                scale = S::value_scale(scales, group + w * LANES / GROUP);
            }
            *units = S::load(from.add(S::BYTES * w * LANES), scale);
        }
        row
    }
}
