//! Fits of groups that entries of a codebook are stored for, whose scales are a small whole number
//! and a half under one f16 factor.
//!
//! Which entries are nearest depends on the scale; the best scale for given entries is the
//! least-squares one.

use super::{Block, Group, SMALLEST, factor, inverse, nearest, sum};
use half::f16;

/// What a group becomes under a scale.
pub(in super::super) struct Rounded<const N: usize> {
    /// In units of the scale.
    pub levels: [f32; N],
    pub loss: f32,
}

/// How a type stores its scales.
#[derive(Clone, Copy)]
pub(in super::super) struct Steps {
    /// Scales are `factor * part * (step + 1/2)`.
    pub part: f32,
    /// The largest step.
    pub most: f32,
    /// Scales that are tried put the value of largest magnitude at these levels.
    pub reaches: &'static [f32],
}

impl Steps {
    /// The scale of a group.
    pub fn scale(&self, factor: f16, step: f32) -> f32 {
        factor.to_f32() * self.part * (step + 0.5)
    }
}

/// The factor and the step of each of `G` groups under which a block loses least.
#[inline(always)]
pub(in super::super) fn fit_steps<const LEN: usize, const N: usize, const G: usize>(
    block: &Block<LEN>,
    steps: Steps,
    round: impl Fn(Group<'_, N>, f32) -> Rounded<N> + Copy,
) -> (f16, [f32; G]) {
    let mut wanted = [0.0; G];
    for (wanted, group) in wanted.iter_mut().zip(block.groups::<N>()) {
        *wanted = fit_scale(group, steps.reaches, round);
    }
    let top = wanted.iter().fold(0.0f32, |m, &v| m.max(v));
    let mut best = (f16::ZERO, [0.0; G], f32::INFINITY);
    if top == 0.0 {
        return (best.0, best.1);
    }
    let mut unit = factor(top / (steps.part * (steps.most + 0.5)));
    for _ in 0..3 {
        let found = round_steps::<LEN, N, G>(block, steps, unit, &wanted, round);
        if found.loss >= best.2 {
            break;
        }
        best = (unit, found.steps, found.loss);
        wanted = found.steps.map(|step| steps.scale(unit, step));
        unit = found.refit(unit);
    }
    (best.0, best.1)
}

/// The scale under which a group loses least, before it is rounded to a step.
#[inline(always)]
fn fit_scale<const N: usize>(
    group: Group<'_, N>,
    reaches: &[f32],
    round: impl Fn(Group<'_, N>, f32) -> Rounded<N>,
) -> f32 {
    let most = group.extreme().abs();
    if most < SMALLEST {
        return 0.0;
    }
    let (mut best, mut best_gain) = (0.0, 0.0);
    for reach in reaches {
        let (scale, gain) = least_squares(group, &round(group, most / reach).levels);
        if gain > best_gain {
            (best, best_gain) = (scale, gain);
        }
    }
    // The entries nearest under the fitted scale may differ from those it was fitted to.
    for _ in 0..2 {
        let (scale, gain) = least_squares(group, &round(group, best).levels);
        if gain <= best_gain {
            break;
        }
        (best, best_gain) = (scale, gain);
    }
    best
}

/// The best scale for the levels of a group, and what it gains.
fn least_squares<const N: usize>(group: Group<'_, N>, levels: &[f32; N]) -> (f32, f32) {
    let (values, weights) = (group.values, group.weights);
    let square = sum::<N>(|i| weights[i] * levels[i] * levels[i]);
    let product = sum::<N>(|i| weights[i] * levels[i] * values[i]);
    if product > 0.0 { (product / square, product * product / square) } else { (0.0, 0.0) }
}

/// A block under one factor.
struct Found<const G: usize> {
    steps: [f32; G],
    loss: f32,
    /// Of the values with what they are restored as in units of the factor, and of that squared.
    product: f32,
    square: f32,
}

impl<const G: usize> Found<G> {
    /// The least-squares factor for the entries found under `unit`.
    fn refit(&self, unit: f16) -> f16 {
        if self.product > 0.0 { factor(self.product / self.square) } else { unit }
    }
}

/// The steps about the `wanted` scales under which each group loses least.
#[inline(always)]
fn round_steps<const LEN: usize, const N: usize, const G: usize>(
    block: &Block<LEN>,
    steps: Steps,
    unit: f16,
    wanted: &[f32; G],
    round: impl Fn(Group<'_, N>, f32) -> Rounded<N>,
) -> Found<G> {
    let mut found = Found { steps: [0.0; G], loss: 0.0, product: 0.0, square: 0.0 };
    let one = inverse(unit.to_f32() * steps.part);
    for (g, group) in block.groups::<N>().enumerate() {
        let middle = nearest(wanted[g] * one - 0.5, 0.0, steps.most);
        let mut best = round(group, steps.scale(unit, middle));
        let mut step = middle;
        for trial in [middle - 1.0, middle + 1.0] {
            if trial < 0.0 || trial > steps.most {
                continue;
            }
            let rounded = round(group, steps.scale(unit, trial));
            if rounded.loss < best.loss {
                (best, step) = (rounded, trial);
            }
        }
        let (values, weights, levels) = (group.values, group.weights, &best.levels);
        let scale = steps.part * (step + 0.5);
        found.product += scale * sum::<N>(|i| weights[i] * levels[i] * values[i]);
        found.square += scale * scale * sum::<N>(|i| weights[i] * levels[i] * levels[i]);
        found.loss += best.loss;
        found.steps[g] = step;
    }
    found
}
