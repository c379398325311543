//! Fits of `value = scale * level` for levels on both sides of zero, for single groups and for
//! groups whose scales are small integers times one f16 factor.
//!
//! For given levels the best scale is the least-squares one, `sum(w x l) / sum(w l l)`, and its
//! error is smallest where `sum(w x l)^2 / sum(w l l)` is largest.

use crate::quant::fit::round::{MIN_SCALE, factor, factors, inverse, nearest, store_f16};
use crate::quant::fit::weighted::{WeightedBlock, WeightedGroup, each, lesser, sum};
use half::f16;

/// The levels of a type, in units of the scale.
#[derive(Clone, Copy)]
pub(in super::super) struct Levels<R> {
    /// The level nearest to a value.
    pub round: R,
    /// The lowest level and the highest.
    pub ends: [f32; 2],
    /// Scales that are tried put the value of largest magnitude at these multiples of an end.
    pub reaches: &'static [f32],
}

/// The scale with the least error for a group, before it is rounded to the stored precision.
#[inline(always)]
fn fit_scale<const N: usize>(
    group: WeightedGroup<'_, N>,
    levels: Levels<impl Fn(f32) -> f32>,
) -> f32 {
    let extreme = group.extreme();
    if extreme.abs() < MIN_SCALE {
        return 0.0;
    }
    let tries = levels.ends.iter().flat_map(|end| levels.reaches.iter().map(move |r| r * end));
    let (mut best, mut best_gain) = (0.0, 0.0);
    for reach in tries {
        let (scale, gain) = least_squares(group, reach / extreme, &levels.round);
        if gain > best_gain {
            (best, best_gain) = (scale, gain);
        }
    }
    // The nearest levels under the fitted scale may differ from the levels of the fit.
    for _ in 0..2 {
        let (scale, gain) = least_squares(group, inverse(best), &levels.round);
        if gain > best_gain {
            (best, best_gain) = (scale, gain);
        }
    }
    best
}

/// The best scale for the levels nearest to `values * inverse`, and its gain.
#[inline(always)]
fn least_squares<const N: usize>(
    group: WeightedGroup<'_, N>,
    inverse: f32,
    round: impl Fn(f32) -> f32,
) -> (f32, f32) {
    let (values, weights) = (group.values, group.weights);
    let levels: [f32; N] = each(|i| round(values[i] * inverse));
    let square = sum::<N>(|i| weights[i] * levels[i] * levels[i]);
    let product = sum::<N>(|i| weights[i] * levels[i] * values[i]);
    if square == 0.0 { (0.0, 0.0) } else { (product / square, product * product / square) }
}

/// Error of a group under a scale as stored.
#[inline(always)]
fn loss<const N: usize>(
    group: WeightedGroup<'_, N>,
    scale: f32,
    round: impl Fn(f32) -> f32,
) -> f32 {
    let inverse = inverse(scale);
    let restored: [f32; N] = each(|i| scale * round(group.values[i] * inverse));
    group.error(|i| restored[i])
}

/// Stores the f16 scale with the least error for a block in the first two bytes of `to`, and
/// returns the values in units of it.
#[inline(always)]
pub(in super::super) fn store_f16_scale<const LEN: usize>(
    block: &WeightedBlock<LEN>,
    levels: Levels<impl Fn(f32) -> f32 + Copy>,
    to: &mut [u8],
) -> [f32; LEN] {
    let tries = factors(fit_scale(block.whole(), levels));
    let scored = tries.into_iter().map(|d| (d, loss(block.whole(), d.to_f32(), levels.round)));
    let (d, _) = scored.reduce(lesser).expect("there are tries");
    store_f16(d, to);
    let inverse = inverse(d.to_f32());
    block.values.map(|v| v * inverse)
}

/// The factor, and the scale of each of `G` groups within `low..=high`, with the least error for a
/// block: `value = factor * scale * level`. `reach` is the distance from the fitted scale up to
/// which integer scales are tried, in steps.
#[inline(always)]
pub(in super::super) fn fit_scales<const LEN: usize, const N: usize, const G: usize>(
    block: &WeightedBlock<LEN>,
    levels: Levels<impl Fn(f32) -> f32 + Copy>,
    range: [f32; 2],
    reach: i16,
) -> (f16, [f32; G]) {
    let mut fitted = [0.0; G];
    for (fitted, group) in fitted.iter_mut().zip(block.groups::<N>()) {
        *fitted = fit_scale(group, levels);
    }
    let top = fitted.iter().fold(0.0f32, |m, &v| if v.abs() > m.abs() { v } else { m });
    let mut best = (f16::ZERO, [0.0; G], f32::INFINITY);
    for end in [range[0], range[1]] {
        let mut unit = factor(top / end);
        let mut wanted = fitted;
        for _ in 0..3 {
            let (scales, loss) =
                round_scales::<LEN, N, G>(block, levels, unit, &wanted, range, reach);
            if loss >= best.2 {
                break;
            }
            best = (unit, scales, loss);
            wanted = scales.map(|scale| scale * unit.to_f32());
            unit = refit::<LEN, N, G>(block, levels, unit, &scales);
        }
    }
    (best.0, best.1)
}

/// The integer scales near `wanted` with the least error for each group, and the total error.
#[inline(always)]
fn round_scales<const LEN: usize, const N: usize, const G: usize>(
    block: &WeightedBlock<LEN>,
    levels: Levels<impl Fn(f32) -> f32 + Copy>,
    unit: f16,
    wanted: &[f32; G],
    [low, high]: [f32; 2],
    reach: i16,
) -> ([f32; G], f32) {
    let unit = unit.to_f32();
    let (mut scales, mut total) = ([0.0; G], 0.0);
    for ((scale, wanted), group) in scales.iter_mut().zip(wanted).zip(block.groups::<N>()) {
        let middle = nearest(wanted * inverse(unit), low, high);
        let mut least = f32::INFINITY;
        for step in -reach..=reach {
            let trial = (middle + f32::from(step)).clamp(low, high);
            let loss = loss(group, unit * trial, levels.round);
            if loss < least {
                (*scale, least) = (trial, loss);
            }
        }
        total += least;
    }
    (scales, total)
}

/// The best factor for the levels that values have under `unit` and `scales`.
#[inline(always)]
fn refit<const LEN: usize, const N: usize, const G: usize>(
    block: &WeightedBlock<LEN>,
    levels: Levels<impl Fn(f32) -> f32 + Copy>,
    unit: f16,
    scales: &[f32; G],
) -> f16 {
    let (mut product, mut square) = (0.0, 0.0);
    for (scale, group) in scales.iter().zip(block.groups::<N>()) {
        let inverse = inverse(unit.to_f32() * scale);
        let (values, weights) = (group.values, group.weights);
        let restored: [f32; N] = each(|i| scale * (levels.round)(values[i] * inverse));
        product += sum::<N>(|i| weights[i] * values[i] * restored[i]);
        square += sum::<N>(|i| weights[i] * restored[i] * restored[i]);
    }
    if square == 0.0 { unit } else { factor(product / square) }
}
