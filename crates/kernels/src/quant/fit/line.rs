//! Fits of `value = scale * code + offset` with codes `0..=top`, for single groups and for groups
//! whose scales and offsets are small integers times two f16 factors.
//!
//! For given codes the best line is the weighted least-squares one; codes are then rounded again.

use crate::quant::fit::round::{MIN_SCALE, factor, factors, inverse, nearest, store_f16};
use crate::quant::fit::weighted::{WeightedBlock, WeightedGroup, each, lesser, sum};
use half::f16;

/// A line that maps codes to values.
#[derive(Clone, Copy)]
pub(in super::super) struct Line {
    pub scale: f32,
    pub offset: f32,
}

/// The scale, offset and codes of the groups of a block, as stored:
/// `value = factors[0] * scale * code - factors[1] * min`.
pub(in super::super) struct FittedLines<const G: usize> {
    pub factors: [f16; 2],
    pub steps: [[f32; 2]; G],
}

/// Distances of the ends of tried lines inside the smallest and the largest value, in steps.
const ENDS: [f32; 5] = [-0.4, -0.15, 0.1, 0.35, 0.7];

impl Line {
    /// The code of `value`.
    #[inline(always)]
    pub fn code(self, value: f32, top: f32) -> f32 {
        nearest((value - self.offset) * inverse(self.scale), 0.0, top)
    }

    /// Error of a group when codes are rounded under this line.
    #[inline(always)]
    fn loss<const N: usize>(self, group: WeightedGroup<'_, N>, top: f32) -> f32 {
        let inverse = inverse(self.scale);
        let values = group.values;
        let codes: [f32; N] = each(|i| nearest((values[i] - self.offset) * inverse, 0.0, top));
        group.error(|i| self.scale * codes[i] + self.offset)
    }
}

/// Sums over a group that do not depend on the line.
struct Sums {
    weights: f32,
    /// Weighted mean of the values.
    mean: f32,
    /// Weighted sum of squared distances from the mean.
    spread: f32,
}

impl Sums {
    #[inline(always)]
    fn of<const N: usize>(group: WeightedGroup<'_, N>) -> Self {
        let weights = sum::<N>(|i| group.weights[i]);
        let mean = sum::<N>(|i| group.weights[i] * group.values[i]) / weights;
        Self { weights, mean, spread: group.error(|_| mean) }
    }

    /// The least-squares line for the codes that values have under `line`, and its error.
    /// `below` allows no offset above zero.
    #[inline(always)]
    fn improved<const N: usize>(
        &self,
        group: WeightedGroup<'_, N>,
        line: Line,
        top: f32,
        below: bool,
    ) -> (Line, f32) {
        let (values, weights, inverse) = (group.values, group.weights, inverse(line.scale));
        let codes: [f32; N] = each(|i| nearest((values[i] - line.offset) * inverse, 0.0, top));
        let weighted: [f32; N] = each(|i| weights[i] * codes[i]);
        let mean = sum::<N>(|i| weighted[i]) / self.weights;
        let square = sum::<N>(|i| weighted[i] * (codes[i] - mean));
        let product = sum::<N>(|i| weighted[i] * (values[i] - self.mean));
        if !(square > 0.0 && product > 0.0) {
            return (line, f32::INFINITY);
        }
        let scale = product / square;
        let offset = self.mean - scale * mean;
        if !(below && offset > 0.0) {
            return (Line { scale, offset }, self.spread - product * scale);
        }
        // The best line through zero.
        let square = sum::<N>(|i| weighted[i] * codes[i]);
        let product = sum::<N>(|i| weighted[i] * values[i]);
        let squares = self.spread + self.weights * self.mean * self.mean;
        let scale = product / square;
        (Line { scale, offset: 0.0 }, squares - product * scale)
    }
}

/// The line with the least error for a group. `below` allows no offset above zero.
#[inline(always)]
fn fit_line<const N: usize>(group: WeightedGroup<'_, N>, top: f32, below: bool) -> Line {
    let (mut low, mut high) = (group.values[0], group.values[0]);
    for &value in group.values {
        (low, high) = (low.min(value), high.max(value));
    }
    if below {
        (low, high) = (low.min(0.0), high.max(0.0));
    }
    let flat = Line { scale: 0.0, offset: low };
    if high - low < MIN_SCALE {
        return flat;
    }
    let (sums, step) = (Sums::of(group), (high - low) / top);
    let mut best = (flat, f32::INFINITY);
    for (from, to) in ENDS.iter().flat_map(|from| ENDS.map(|to| (from, to))) {
        let offset = low + from * step;
        let line = Line { scale: (high - to * step - offset) / top, offset };
        best = lesser(best, sums.improved(group, line, top, below));
    }
    for _ in 0..2 {
        best = lesser(best, sums.improved(group, best.0, top, below));
    }
    best.0
}

/// Stores the f16 scale and offset with the least error for a group in the first four bytes of
/// `to`.
#[inline(always)]
pub(in super::super) fn store_f16_line<const N: usize>(
    group: WeightedGroup<'_, N>,
    top: f32,
    to: &mut [u8],
) -> Line {
    let line = fit_line(group, top, false);
    let mut best = ([f16::ZERO; 2], f32::INFINITY);
    for scale in factors(line.scale) {
        for offset in factors(line.offset) {
            let loss = Line { scale: scale.to_f32(), offset: offset.to_f32() }.loss(group, top);
            if loss < best.1 {
                best = ([scale, offset], loss);
            }
        }
    }
    let [scale, offset] = best.0;
    store_f16(scale, to);
    store_f16(offset, &mut to[2..]);
    Line { scale: scale.to_f32(), offset: offset.to_f32() }
}

impl<const G: usize> FittedLines<G> {
    /// The line of group `g`.
    #[inline(always)]
    pub fn line(&self, g: usize) -> Line {
        line(self.factors, self.steps[g])
    }
}

#[inline(always)]
fn line([scale, min]: [f16; 2], steps: [f32; 2]) -> Line {
    Line { scale: scale.to_f32() * steps[0], offset: -(min.to_f32() * steps[1]) }
}

/// The factors, and the steps within `0..=most` of each of `G` groups, with the least error for a
/// block of codes `0..=top`.
#[inline(always)]
pub(in super::super) fn fit_lines<const LEN: usize, const N: usize, const G: usize>(
    block: &WeightedBlock<LEN>,
    top: f32,
    most: f32,
    shrinks: &[f32],
) -> FittedLines<G> {
    let mut fitted = [Line { scale: 0.0, offset: 0.0 }; G];
    for (fitted, group) in fitted.iter_mut().zip(block.groups::<N>()) {
        *fitted = fit_line(group, top, true);
    }
    let scale = fitted.iter().fold(0.0f32, |m, l| m.max(l.scale));
    let min = fitted.iter().fold(0.0f32, |m, l| m.max(-l.offset));
    let mut best = FittedLines { factors: [f16::ZERO; 2], steps: [[0.0; 2]; G] };
    let mut least = f32::INFINITY;
    for &shrink in shrinks {
        let mut lines = FittedLines {
            factors: [factor(scale * shrink / most), factor(min * shrink / most)],
            steps: [[0.0; 2]; G],
        };
        let units = lines.factors.map(|f| inverse(f.to_f32()));
        for (steps, line) in lines.steps.iter_mut().zip(&fitted) {
            *steps =
                [line.scale * units[0], -line.offset * units[1]].map(|s| nearest(s, 0.0, most));
        }
        for _ in 0..3 {
            let loss = round_steps::<LEN, N, G>(block, &mut lines, top, most);
            if loss >= least {
                break;
            }
            least = loss;
            best = FittedLines { ..lines };
            lines.factors = refit::<LEN, N, G>(block, &lines, top);
        }
    }
    best
}

/// Moves the steps of each group to the neighbours with the least error; returns the total error.
#[inline(always)]
fn round_steps<const LEN: usize, const N: usize, const G: usize>(
    block: &WeightedBlock<LEN>,
    lines: &mut FittedLines<G>,
    top: f32,
    most: f32,
) -> f32 {
    let mut total = 0.0;
    for (steps, group) in lines.steps.iter_mut().zip(block.groups::<N>()) {
        let mut least = line(lines.factors, *steps).loss(group, top);
        for _ in 0..2 {
            let middle = *steps;
            for (i, j) in NEIGHBOURS {
                let trial = [middle[0] + i, middle[1] + j].map(|s| s.clamp(0.0, most));
                let loss = line(lines.factors, trial).loss(group, top);
                if loss < least {
                    (*steps, least) = (trial, loss);
                }
            }
            if *steps == middle {
                break;
            }
        }
        total += least;
    }
    total
}

/// Steps around a pair of steps.
const NEIGHBOURS: [(f32, f32); 8] = [
    (-1.0, -1.0),
    (-1.0, 0.0),
    (-1.0, 1.0),
    (0.0, -1.0),
    (0.0, 1.0),
    (1.0, -1.0),
    (1.0, 0.0),
    (1.0, 1.0),
];

/// The least-squares factors for the steps of `lines` and the codes that values have.
#[inline(always)]
fn refit<const LEN: usize, const N: usize, const G: usize>(
    block: &WeightedBlock<LEN>,
    lines: &FittedLines<G>,
    top: f32,
) -> [f16; 2] {
    // Normal equations of `value = factors[0] * a - factors[1] * b`.
    let (mut aa, mut ab, mut bb, mut ax, mut bx) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (g, group) in block.groups::<N>().enumerate() {
        let (values, weights) = (group.values, group.weights);
        let (line, [scale, min]) = (lines.line(g), lines.steps[g]);
        let unit = inverse(line.scale);
        let a: [f32; N] = each(|i| scale * nearest((values[i] - line.offset) * unit, 0.0, top));
        aa += f64::from(sum::<N>(|i| weights[i] * a[i] * a[i]));
        ab += f64::from(sum::<N>(|i| weights[i] * a[i]) * min);
        ax += f64::from(sum::<N>(|i| weights[i] * a[i] * values[i]));
        bb += f64::from(sum::<N>(|i| weights[i]) * min * min);
        bx += f64::from(sum::<N>(|i| weights[i] * values[i]) * min);
    }
    let det = aa * bb - ab * ab;
    let solved = [(ax * bb - bx * ab) / det, (ax * ab - bx * aa) / det];
    if det > 0.0 && solved.iter().all(|&f| f > 0.0) {
        return solved.map(|f| factor(f as f32));
    }
    if aa > 0.0 && bb == 0.0 { [factor((ax / aa) as f32), f16::ZERO] } else { lines.factors }
}
