//! How much an expert is used: uses by decoded rows, of which each counts half as much with every
//! [`Heat::HALF_LIFE`] steps.
//!
//! The value is kept as the step at which a single use would count as much. It then does not change
//! as time goes by, and comparing two of them needs no clock.

use std::cmp::Ordering;

/// The step at which a single use would count as much as all that there were.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heat(f64);

impl Default for Heat {
    fn default() -> Self {
        Self(f64::NEG_INFINITY)
    }
}

impl Heat {
    /// Steps after which a use counts half.
    pub const HALF_LIFE: f64 = 8.0;

    /// What uses in each of many steps before `step` add up to, `share` of them in a step.
    pub fn steady(share: f64, step: u64) -> Self {
        let uses = share.max(0.0) / (1.0 - (-1.0 / Self::HALF_LIFE).exp2());
        Self(step as f64 + Self::HALF_LIFE * uses.log2())
    }

    /// Adds `uses` uses at `step`.
    pub fn add(&mut self, uses: usize, step: u64) {
        self.add_fading(uses, step, Self::HALF_LIFE);
    }

    /// Adds `uses` uses at `step`, of which each counts half as much with every `half_life` steps.
    /// All uses of an expert fade alike.
    pub fn add_fading(&mut self, uses: usize, step: u64, half_life: f64) {
        if uses == 0 {
            return;
        }
        let new = step as f64 + half_life * (uses as f64).log2();
        let (high, low) = (self.0.max(new), self.0.min(new));
        self.0 =
            high + half_life * ((low - high) / half_life).exp2().ln_1p() / std::f64::consts::LN_2;
    }

    /// The step at which a single use would count as much; negative infinity without uses.
    pub fn value(self) -> f64 {
        self.0
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
                rows as f64 * ((then as f64 - step as f64) / Heat::HALF_LIFE).exp2()
            };
            let sum: f64 = uses[..=at].iter().map(faded).sum();
            let expected = step as f64 + Heat::HALF_LIFE * sum.log2();
            assert!((heat.0 - expected).abs() < 1e-9, "{heat:?} {expected}");
        }
    }

    #[test]
    fn steady_uses_are_those_of_every_step() {
        for every in [1_u64, 2] {
            let mut heat = Heat::default();
            (0..400).filter(|step| step % every == 0).for_each(|step| heat.add(1, step));
            let steady = Heat::steady(1.0 / every as f64, 399);
            assert!((heat.0 - steady.0).abs() < 1.0, "{heat:?} {steady:?}");
        }
        assert_eq!(Heat::steady(0.0, 3).0, f64::NEG_INFINITY);
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
