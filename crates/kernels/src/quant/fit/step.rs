//! Fits of groups stored as entries of a codebook, with scales of a small integer plus a half,
//! times one f16 factor.
//!
//! Which entries are nearest depends on the scale; the best scale for given entries is the
//! least-squares one.

use crate::quant::fit::round::{MIN_SCALE, factor, inverse, nearest};
use crate::quant::fit::weighted::{WeightedBlock, WeightedGroup, sum};
use half::f16;

/// Rounding of a group to entries of a type's codebook.
pub(in super::super) trait Rounding<const N: usize>: Copy {
    /// Rounds the group under a scale. `#[inline(always)]`, as all functions here.
    fn round(self, group: WeightedGroup<'_, N>, scale: f32) -> Rounded<N>;
}

/// A group rounded under a scale.
pub(in super::super) struct Rounded<const N: usize> {
    /// In units of the scale.
    pub levels: [f32; N],
    pub loss: f32,
}

/// The stored form of a type's scales.
#[derive(Clone, Copy)]
pub(in super::super) struct StepGrid {
    /// Scales are `factor * part * (step + 1/2)`.
    pub part: f32,
    /// The largest step.
    pub most: f32,
    /// Scales that are tried put the value of largest magnitude at these levels.
    pub reaches: &'static [f32],
}

impl StepGrid {
    /// The scale of a group.
    #[inline(always)]
    pub fn scale(&self, factor: f16, step: f32) -> f32 {
        factor.to_f32() * self.part * (step + 0.5)
    }
}

/// The factor, and the step of each of `G` groups, with the least error for a block.
#[inline(always)]
pub(in super::super) fn fit_steps<const LEN: usize, const N: usize, const G: usize>(
    block: &WeightedBlock<LEN>,
    steps: StepGrid,
    rounding: impl Rounding<N>,
) -> (f16, [f32; G]) {
    let mut wanted = [0.0; G];
    for (wanted, group) in wanted.iter_mut().zip(block.groups::<N>()) {
        *wanted = fit_scale(group, steps.reaches, rounding);
    }
    let top = wanted.iter().fold(0.0f32, |m, &v| m.max(v));
    let mut best = (f16::ZERO, [0.0; G], f32::INFINITY);
    if top == 0.0 {
        return (best.0, best.1);
    }
    let mut unit = factor(top / (steps.part * (steps.most + 0.5)));
    for _ in 0..3 {
        let found = round_steps::<LEN, N, G>(block, steps, unit, &wanted, rounding);
        if found.loss >= best.2 {
            break;
        }
        best = (unit, found.steps, found.loss);
        wanted = found.wanted;
        unit = found.refit(unit);
    }
    (best.0, best.1)
}

/// The scale with the least error for a group, before it is rounded to a step.
#[inline(always)]
fn fit_scale<const N: usize>(
    group: WeightedGroup<'_, N>,
    reaches: &[f32],
    rounding: impl Rounding<N>,
) -> f32 {
    let most = group.extreme().abs();
    if most < MIN_SCALE {
        return 0.0;
    }
    let (mut best, mut best_gain) = (0.0, 0.0);
    // The nearest entries under the fitted scale may differ from the entries of the fit.
    for trial in reaches.iter().map(|reach| Some(most / reach)).chain([None; 2]) {
        let levels = rounding.round(group, trial.unwrap_or(best)).levels;
        let (scale, gain) = least_squares(group, &levels);
        if gain > best_gain {
            (best, best_gain) = (scale, gain);
        }
    }
    best
}

/// The best scale for the levels of a group, and its gain.
#[inline(always)]
fn least_squares<const N: usize>(group: WeightedGroup<'_, N>, levels: &[f32; N]) -> (f32, f32) {
    let (values, weights) = (group.values, group.weights);
    let square = sum::<N>(|i| weights[i] * levels[i] * levels[i]);
    let product = sum::<N>(|i| weights[i] * levels[i] * values[i]);
    if product > 0.0 { (product / square, product * product / square) } else { (0.0, 0.0) }
}

/// A block under one factor.
struct RoundedBlock<const G: usize> {
    steps: [f32; G],
    loss: f32,
    /// The best scales for the entries found.
    wanted: [f32; G],
    /// Weighted sums over the restored values in units of the factor: their products with the
    /// values, and their squares.
    product: f32,
    square: f32,
}

impl<const G: usize> RoundedBlock<G> {
    /// The least-squares factor for the entries found under `unit`.
    #[inline(always)]
    fn refit(&self, unit: f16) -> f16 {
        if self.product > 0.0 { factor(self.product / self.square) } else { unit }
    }
}

/// The steps near the `wanted` scales with the least error for each group.
#[inline(always)]
fn round_steps<const LEN: usize, const N: usize, const G: usize>(
    block: &WeightedBlock<LEN>,
    steps: StepGrid,
    unit: f16,
    wanted: &[f32; G],
    rounding: impl Rounding<N>,
) -> RoundedBlock<G> {
    let mut found =
        RoundedBlock { steps: [0.0; G], loss: 0.0, wanted: *wanted, product: 0.0, square: 0.0 };
    let one = inverse(unit.to_f32() * steps.part);
    for (g, group) in block.groups::<N>().enumerate() {
        let step = wanted[g] * one - 0.5;
        let near = nearest(step, 0.0, steps.most);
        let far = if step < near { near - 1.0 } else { near + 1.0 };
        let mut best = Rounded { levels: [0.0; N], loss: f32::INFINITY };
        for trial in [near, far.clamp(0.0, steps.most)] {
            let rounded = rounding.round(group, steps.scale(unit, trial));
            if rounded.loss < best.loss {
                (best, found.steps[g]) = (rounded, trial);
            }
        }
        let (values, weights, levels) = (group.values, group.weights, &best.levels);
        let scale = steps.part * (found.steps[g] + 0.5);
        let product = sum::<N>(|i| weights[i] * levels[i] * values[i]);
        let square = sum::<N>(|i| weights[i] * levels[i] * levels[i]);
        if product > 0.0 {
            found.wanted[g] = product / square;
        }
        found.product += scale * product;
        found.square += scale * scale * square;
        found.loss += best.loss;
    }
    found
}
