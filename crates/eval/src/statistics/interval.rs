//! Intervals that have the true mean with a probability of 95 %.

use super::mean::mean;
use super::normal::NORMAL_95;
use base::Rng;

/// Samples of [`Interval::bootstrap`].
pub const BOOTSTRAP_DRAWS: usize = 10_000;
/// The part of the samples that is outside on each side.
const TAIL: f64 = 0.025;

/// An interval of means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Its least mean.
    pub low: f64,
    /// Its greatest mean.
    pub high: f64,
}

impl Interval {
    /// The interval of Wilson's score (Probable inference, 1927) of a share: `passed` of `items`,
    /// which is at most `items`. It is 0 to 1 of no items.
    pub fn wilson(passed: usize, items: usize) -> Self {
        if items == 0 {
            return Self { low: 0.0, high: 1.0 };
        }
        let (count, squared) = (items as f64, NORMAL_95 * NORMAL_95);
        let share = passed as f64 / count;
        let centre = share + squared / (2.0 * count);
        let variance = share * (1.0 - share) / count + squared / (4.0 * count * count);
        let half = NORMAL_95 * variance.sqrt();
        let within = |bound: f64| (bound / (1.0 + squared / count)).clamp(0.0, 1.0);
        let low = if passed == 0 { 0.0 } else { within(centre - half) };
        let high = if passed == items { 1.0 } else { within(centre + half) };
        Self { low, high }
    }

    /// The interval between the percentiles of the means of [`BOOTSTRAP_DRAWS`] samples, which are
    /// drawn from the scores with replacement (Efron, Bootstrap methods, 1979). `None` of no
    /// scores.
    pub fn bootstrap(scores: &[f64], seed: u64) -> Option<Self> {
        if scores.is_empty() {
            return None;
        }
        let mut rng = Rng::new(seed);
        let mut sample = vec![0.0; scores.len()];
        let mut means: Vec<f64> = Vec::with_capacity(BOOTSTRAP_DRAWS);
        for _ in 0..BOOTSTRAP_DRAWS {
            sample.fill_with(|| scores[rng.below(scores.len() as u64) as usize]);
            means.push(mean(&sample));
        }
        means.sort_by(f64::total_cmp);
        let last = means.len() - 1;
        let at = |part: f64| means[(part * last as f64).round() as usize];
        Some(Self { low: at(TAIL), high: at(1.0 - TAIL) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Newcombe, Two-sided confidence intervals for the single proportion, 1998, table I, method 3.
    #[test]
    fn wilsons_intervals_are_the_published_ones() {
        for (passed, items, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0000, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let found = Interval::wilson(passed, items);
            let is_near = |found: f64, expected: f64| (found - expected).abs() < 5.1e-5;
            assert!(is_near(found.low, low) && is_near(found.high, high), "{found:?}");
        }
    }

    #[test]
    fn bounds_of_none_and_of_all_are_exact() {
        for items in 1..200 {
            let [none, all] = [Interval::wilson(0, items), Interval::wilson(items, items)];
            assert_eq!((none.low, all.high), (0.0, 1.0));
            assert!((none.high - (1.0 - all.low)).abs() < 1e-12, "{none:?} {all:?}");
        }
        assert_eq!(Interval::wilson(0, 0), Interval { low: 0.0, high: 1.0 });
    }

    #[test]
    fn samples_follow_from_the_seed() {
        let scores: Vec<f64> = (0..40).map(f64::from).collect();
        let found = Interval::bootstrap(&scores, 1).unwrap();
        assert_eq!(Some(found), Interval::bootstrap(&scores, 1));
        assert_ne!(Some(found), Interval::bootstrap(&scores, 2));
        // The standard deviation of 0 to 39, over the root of their number.
        let half = NORMAL_95 * ((1600.0_f64 - 1.0) / 12.0 / 40.0).sqrt();
        assert!((found.low - (19.5 - half)).abs() < 0.3, "{found:?}");
        assert!((found.high - (19.5 + half)).abs() < 0.3, "{found:?}");
        assert_eq!(Interval::bootstrap(&[], 1), None);
        assert_eq!(Interval::bootstrap(&[0.5; 9], 1), Some(Interval { low: 0.5, high: 0.5 }));
    }

    /// Of a thousand runs whose items pass with a known probability, about 95 % have it in their
    /// interval.
    #[test]
    fn intervals_cover() {
        let mut rng = Rng::new(7);
        for truth in [0.1, 0.5, 0.8] {
            let mut covered = [0; 2];
            for run in 0..1000 {
                let scores: Vec<f64> = (0..120).map(|_| f64::from(rng.uniform() < truth)).collect();
                let passed = scores.iter().filter(|score| **score > 0.5).count();
                let wilson = Interval::wilson(passed, scores.len());
                covered[0] += usize::from((wilson.low..=wilson.high).contains(&truth));
                if run < 60 {
                    let drawn = Interval::bootstrap(&scores, run).unwrap();
                    covered[1] += usize::from((drawn.low..=drawn.high).contains(&truth));
                }
            }
            assert!((930..=970).contains(&covered[0]), "{truth}: {covered:?}");
            assert!((51..=60).contains(&covered[1]), "{truth}: {covered:?}");
        }
    }
}
