//! How much an expert is used: uses by decoded rows, of which each counts half as much with every
//! [`HALF_LIFE`] steps.
//!
//! The value is kept as the step at which a single use would count as much. It then does not change
//! as time goes by, and comparing two of them needs no clock.

use std::cmp::Ordering;

/// Steps after which a use counts half.
const HALF_LIFE: f64 = 8.0;

/// The step at which a single use would count as much as all that there were.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Heat(f64);

impl Default for Heat {
    fn default() -> Self {
        Self(f64::NEG_INFINITY)
    }
}

impl Heat {
    /// Adds `uses` uses at `step`.
    pub fn add(&mut self, uses: usize, step: u64) {
        if uses == 0 {
            return;
        }
        let new = step as f64 + HALF_LIFE * (uses as f64).log2();
        let (high, low) = (self.0.max(new), self.0.min(new));
        self.0 =
            high + HALF_LIFE * ((low - high) / HALF_LIFE).exp2().ln_1p() / std::f64::consts::LN_2;
    }

    /// The colder one first; what was never used is as cold as what holds nothing.
    pub fn order(a: Option<Self>, b: Option<Self>) -> Ordering {
        let value = |heat: Option<Self>| heat.map_or(f64::NEG_INFINITY, |heat| heat.0);
        value(a).total_cmp(&value(b)).then(a.is_some().cmp(&b.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_is_the_sum_of_uses_that_fade() {
        let uses: [(u64, usize); 6] = [(1, 1), (1, 2), (4, 1), (30, 3), (31, 1), (90, 1)];
        let mut heat = Heat::default();
        for (at, &(step, rows)) in uses.iter().enumerate() {
            heat.add(rows, step);
            let faded = |&(then, rows): &(u64, usize)| {
                rows as f64 * ((then as f64 - step as f64) / HALF_LIFE).exp2()
            };
            let sum: f64 = uses[..=at].iter().map(faded).sum();
            let expected = step as f64 + HALF_LIFE * sum.log2();
            assert!((heat.0 - expected).abs() < 1e-9, "{heat:?} {expected}");
        }
    }

    #[test]
    fn what_holds_nothing_is_taken_first_and_then_the_coldest() {
        let mut hot = Heat::default();
        hot.add(1, 5);
        let mut all = [Some(hot), Some(Heat::default()), None];
        all.sort_by(|a, b| Heat::order(*a, *b));
        assert_eq!(all, [None, Some(Heat::default()), Some(hot)]);
    }
}
