//! Codebooks prepared for searches of the entry nearest to a few weighted values.
//!
//! The error of an entry is the sum over its positions, and so the sum of the errors of its two
//! halves, of which few differ. If the nearest levels at each position form an entry, that entry is
//! the nearest. Otherwise the search visits all entries by the last quarter and then the upper half
//! of their positions, and skips a half if its error and the smallest error of the rest exceed the
//! best error found.

use crate::quant::fit::step::{Rounded, Rounding};
use crate::quant::fit::weighted::WeightedGroup;

/// A codebook: entries of `P` positions, each with one of `L` levels.
pub(in super::super) struct Book<const P: usize, const L: usize> {
    /// The code at each position of every entry.
    codes: Vec<[u8; P]>,
    /// Number of the entry of each combination of codes, or [`NONE`].
    numbers: Vec<u16>,
    /// Entries ordered by upper half: lower half and number.
    lowers: Vec<(u8, u16)>,
    /// Start of the entries of each upper half in `lowers`, and the end of all.
    starts: [u16; HALVES + 1],
}

/// A codebook with the level of each code.
#[derive(Clone, Copy)]
pub(in super::super) struct Leveled<'a, const P: usize, const L: usize> {
    pub book: &'a Book<P, L>,
    pub levels: &'a [f32; L],
}

impl<const N: usize, const P: usize, const L: usize> Rounding<N> for Leveled<'_, P, L> {
    #[inline(always)]
    fn round(self, group: WeightedGroup<'_, N>, scale: f32) -> Rounded<N> {
        let mut rounded = Rounded { levels: [0.0; N], loss: 0.0 };
        let parts = group.values.as_chunks::<P>().0.iter().zip(group.weights.as_chunks::<P>().0);
        for ((values, weights), out) in parts.zip(rounded.levels.as_chunks_mut::<P>().0) {
            let (number, loss) = self.nearest(values, weights, scale);
            *out = self.book.codes(number).map(|code| self.levels[usize::from(code)]);
            rounded.loss += loss;
        }
        rounded
    }
}

impl<const P: usize, const L: usize> Leveled<'_, P, L> {
    /// The one or two nearest entries for eight values, and their error.
    #[inline(always)]
    pub fn nearest_eight(self, eight: WeightedGroup<'_, 8>, scale: f32) -> ([u16; 2], f32) {
        let (mut numbers, mut total) = ([0; 2], 0.0);
        let parts = eight.values.as_chunks::<P>().0.iter().zip(eight.weights.as_chunks::<P>().0);
        for ((values, weights), number) in parts.zip(&mut numbers) {
            let (found, loss) = self.nearest(values, weights, scale);
            *number = found;
            total += loss;
        }
        (numbers, total)
    }

    /// The number of the entry with the least error under `scale`, and the error.
    #[inline(always)]
    fn nearest(self, values: &[f32; P], weights: &[f32; P], scale: f32) -> (u16, f32) {
        let mut costs = [[0.0; P]; L];
        for (costs, level) in costs.iter_mut().zip(self.levels) {
            for i in 0..P {
                let miss = values[i] - scale * level;
                costs[i] = weights[i] * miss * miss;
            }
        }
        self.book.least(&costs)
    }
}

const NONE: u16 = u16::MAX;
/// Most combinations of half an entry: four positions of three levels, or two of eight.
const HALVES: usize = 81;

/// Errors by level and position.
type Costs<const P: usize, const L: usize> = [[f32; P]; L];

impl<const P: usize, const L: usize> Book<P, L> {
    /// Builds a codebook from entries of `bits` bits per position, the first in the lowest bits.
    pub fn new(grid: &[u16], bits: usize) -> Self {
        let code = |entry: u16, i: usize| (entry >> (bits * i)) as u8 & ((1 << bits) - 1);
        let codes: Vec<[u8; P]> =
            grid.iter().map(|&entry| std::array::from_fn(|i| code(entry, i))).collect();
        let mut numbers = vec![NONE; L.pow(P as u32)];
        let mut sorted = Vec::new();
        for (number, codes) in codes.iter().enumerate() {
            let (lower, upper) = codes.split_at(P / 2);
            numbers[join::<L>(codes)] = number as u16;
            sorted.push((join::<L>(upper), join::<L>(lower) as u8, number as u16));
        }
        sorted.sort_unstable();
        let starts =
            std::array::from_fn(|upper| sorted.partition_point(|entry| entry.0 < upper) as u16);
        let lowers = sorted.iter().map(|&(_, lower, number)| (lower, number)).collect();
        Self { codes, numbers, lowers, starts }
    }

    /// The code at each position of entry `number`.
    #[inline(always)]
    fn codes(&self, number: u16) -> &[u8; P] {
        &self.codes[usize::from(number)]
    }

    /// The number of the entry with the least error, and the error.
    #[inline(always)]
    fn least(&self, costs: &Costs<P, L>) -> (u16, f32) {
        let (codes, least) = by_position(costs);
        let number = self.numbers[join::<L>(&codes)];
        if number != NONE {
            return (number, least.iter().sum());
        }
        let lower = tabled(costs, 0, P / 2);
        let [third, fourth] = [P / 2, 3 * P / 4].map(|first| tabled(costs, first, P / 4));
        let floor: f32 = least[..P / 2].iter().sum();
        let third_floor = floor + least[P / 2..3 * P / 4].iter().sum::<f32>();
        let len = L.pow(P as u32 / 4);
        // The upper half with the least error comes first, because its best entry excludes most of
        // the others.
        let likely = join::<L>(&codes[P / 2..]);
        let mut best = (0, f32::INFINITY);
        self.search(likely, third[likely % len] + fourth[likely / len], &lower, &mut best);
        for (high, cost) in fourth[..len].iter().enumerate() {
            if cost + third_floor >= best.1 {
                continue;
            }
            for (low, other) in third[..len].iter().enumerate() {
                let upper = cost + other;
                if upper + floor < best.1 {
                    self.search(high * len + low, upper, &lower, &mut best);
                }
            }
        }
        best
    }

    /// Compares all entries of an upper half with the error `upper`.
    #[inline(always)]
    fn search(&self, half: usize, upper: f32, lower: &[f32; HALVES], best: &mut (u16, f32)) {
        let range = usize::from(self.starts[half])..usize::from(self.starts[half + 1]);
        for &(low, number) in &self.lowers[range] {
            let cost = upper + lower[usize::from(low)];
            if cost < best.1 {
                *best = (number, cost);
            }
        }
    }
}

/// Codes as the digits of a number, the first lowest.
#[inline(always)]
fn join<const L: usize>(codes: &[u8]) -> usize {
    codes.iter().rev().fold(0, |number, &code| number * L + usize::from(code))
}

/// The code with the least error at each position, and the total error.
#[inline(always)]
fn by_position<const P: usize, const L: usize>(costs: &Costs<P, L>) -> ([u8; P], [f32; P]) {
    let (mut codes, mut least) = ([0; P], costs[0]);
    for (code, costs) in costs.iter().enumerate().skip(1) {
        for i in 0..P {
            let better = costs[i] < least[i];
            codes[i] = if better { code as u8 } else { codes[i] };
            least[i] = if better { costs[i] } else { least[i] };
        }
    }
    (codes, least)
}

/// The errors of all combinations of codes at `count` positions, beginning with `first`.
#[inline(always)]
fn tabled<const P: usize, const L: usize>(
    costs: &Costs<P, L>,
    first: usize,
    count: usize,
) -> [f32; HALVES] {
    let mut table = [0.0; HALVES];
    let mut len = 1;
    for i in first..first + count {
        // The lowest code comes last, because the others are computed from the value that it
        // replaces.
        for (code, costs) in costs.iter().enumerate().rev() {
            for at in 0..len {
                table[code * len + at] = table[at] + costs[i];
            }
        }
        len *= L;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    /// Distinct entries of random codes.
    fn entries(
        rng: &mut Rng,
        count: usize,
        positions: usize,
        levels: usize,
        bits: usize,
    ) -> Vec<u16> {
        let mut entries = Vec::new();
        while entries.len() < count {
            let entry =
                (0..positions).fold(0, |e, i| e | (rng.below(levels as u64) as u16) << (bits * i));
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        entries
    }

    fn check<const P: usize, const L: usize>(count: usize, bits: usize) {
        let mut rng = Rng::new(21);
        let grid = entries(&mut rng, count, P, L, bits);
        let book = Book::<P, L>::new(&grid, bits);
        let levels: [f32; L] = std::array::from_fn(|l| l as f32 * 1.5 - 1.0);
        for _ in 0..200 {
            let values: [f32; P] = std::array::from_fn(|_| rng.normal() * 2.0);
            let weights: [f32; P] = std::array::from_fn(|_| rng.normal().exp());
            let loss = |entry: &u16| -> f32 {
                let miss = |i: usize| {
                    values[i] - 0.7 * levels[usize::from(entry >> (bits * i)) & ((1 << bits) - 1)]
                };
                (0..P).map(|i| weights[i] * miss(i).powi(2)).sum()
            };
            let least = grid.iter().map(loss).fold(f32::INFINITY, f32::min);
            let (number, found) =
                Leveled { book: &book, levels: &levels }.nearest(&values, &weights, 0.7);
            assert!((found - least).abs() <= 1e-5 * least, "{found}, {least}");
            assert!((loss(&grid[usize::from(number)]) - least).abs() <= 1e-5 * least);
        }
    }

    #[test]
    fn no_entry_is_nearer_than_the_one_found() {
        for count in [1, 20, 700] {
            check::<8, 3>(count, 2);
            check::<4, 8>(count, 3);
        }
    }
}
