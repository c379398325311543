//! The difference of two models that were scored on the same items.

use super::estimate::Estimate;
use super::normal::{NORMAL_95, POWER_80};
use super::p_values::{mcnemar, sign_flip};

/// What scores of the same items show of the difference of two models.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The mean of the second model's scores less the first one's, with the error of paired items.
    pub estimate: Estimate,
    /// The probability of a difference as large, or larger, if the models were equal: exact
    /// McNemar's test where all scores are 0 or 1, else a test of flipped signs.
    pub p: f64,
}

impl Difference {
    /// The difference of scores of the same items in the same order, as independent items. `seed`
    /// decides the signs that are drawn.
    ///
    /// # Panics
    /// If one model has more scores.
    pub fn of(first: &[f64], second: &[f64], seed: u64) -> Self {
        assert_eq!(first.len(), second.len(), "scores of the same items");
        let differences: Vec<f64> = first.iter().zip(second).map(|(a, b)| b - a).collect();
        let is_binary = first.iter().chain(second).all(|score| *score == 0.0 || *score == 1.0);
        let count = |sign: f64| differences.iter().filter(|it| **it == sign).count();
        let p = if is_binary {
            mcnemar(count(-1.0), count(1.0))
        } else {
            sign_flip(&differences, seed)
        };
        Self { estimate: Estimate::of(&differences), p }
    }
}

/// The smallest difference of means that four of five experiments with so many items show, if the
/// differences of items have the standard deviation `deviation`; `None` of no items.
pub fn smallest_difference(deviation: f64, items: usize) -> Option<f64> {
    (items > 0).then(|| (NORMAL_95 + POWER_80) * deviation / (items as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_of_a_run_with_itself_is_zero() {
        for scores in [vec![0.0, 1.0, 1.0, 0.0, 1.0], vec![0.25, 0.5, 0.125]] {
            let found = Difference::of(&scores, &scores, 1);
            assert_eq!((found.estimate.mean, found.estimate.error, found.p), (0.0, Some(0.0), 1.0));
        }
    }

    #[test]
    fn items_are_compared_in_pairs() {
        // Both fail the same hard items, so that the difference is far surer than either mean.
        let first: Vec<f64> = (0..100).map(|item| f64::from(item % 2 == 0)).collect();
        let mut second = first.clone();
        second[..8].fill(1.0);
        let found = Difference::of(&first, &second, 1);
        assert!((found.estimate.mean - 0.04).abs() < 1e-12);
        assert!(found.estimate.error.unwrap() < Estimate::of(&first).error.unwrap() / 2.0);
        assert_eq!(found.p, mcnemar(0, 4));
        let halves: Vec<f64> = second.iter().map(|score| score / 2.0).collect();
        assert_ne!(Difference::of(&first, &halves, 1).p, found.p);
    }

    #[test]
    fn more_items_show_smaller_differences() {
        // 2.8 standard errors.
        let found = smallest_difference(0.5, 400).unwrap();
        assert!((found - 2.801_585 * 0.025).abs() < 1e-7, "{found}");
        assert!((smallest_difference(0.5, 1600).unwrap() - found / 2.0).abs() < 1e-12);
        assert_eq!(smallest_difference(0.5, 0), None);
    }
}
