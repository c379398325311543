//! A mean with its standard error.

use super::interval::Interval;
use super::mean::mean;
use super::normal::NORMAL_95;
use std::collections::HashMap;
use std::hash::Hash;

/// The mean of the scores of some items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Number of items.
    pub items: usize,
    /// Their mean; 0 of no items.
    pub mean: f64,
    /// The standard error of the mean, with the variance of `items - 1`; `None` of fewer than two
    /// items.
    pub error: Option<f64>,
}

impl Estimate {
    /// The mean of scores of items that are drawn independently of each other.
    pub fn of(scores: &[f64]) -> Self {
        let mean = mean(scores);
        let items = scores.len();
        let error = (items > 1).then(|| (squares(scores, mean) / pairs(items)).sqrt());
        Self { items, mean, error }
    }

    /// The mean of scores of items, of which those of an equal cluster were drawn together, such as
    /// questions about one text. Each item has a cluster.
    ///
    /// The variance is that of independent items and, over the number of items squared, the sum of
    /// the products of deviations of different items of a cluster (Miller, Adding Error Bars to
    /// Evals, 2024, section 2.2).
    ///
    /// # Panics
    /// If there are not as many clusters as scores.
    pub fn clustered<C: Eq + Hash>(scores: &[f64], clusters: &[C]) -> Self {
        assert_eq!(scores.len(), clusters.len(), "each item has a cluster");
        let alone = Self::of(scores);
        let Some(error) = alone.error else { return alone };
        let mut index: HashMap<&C, usize> = HashMap::new();
        // In the order of their first items, so that sums have one order.
        let mut sums: Vec<f64> = Vec::new();
        for (score, cluster) in scores.iter().zip(clusters) {
            let at = *index.entry(cluster).or_insert_with(|| {
                sums.push(0.0);
                sums.len() - 1
            });
            sums[at] += score - alone.mean;
        }
        let together: f64 = sums.iter().map(|sum| sum * sum).sum();
        let others = together - squares(scores, alone.mean);
        let items = scores.len() as f64;
        let variance = error * error + others / (items * items);
        Self { error: Some(variance.max(0.0).sqrt()), ..alone }
    }

    /// The interval of 95 % of a normal distribution; `None` of fewer than two items.
    pub fn interval(&self) -> Option<Interval> {
        let half = NORMAL_95 * self.error?;
        Some(Interval { low: self.mean - half, high: self.mean + half })
    }
}

fn squares(scores: &[f64], mean: f64) -> f64 {
    scores.iter().map(|score| (score - mean) * (score - mean)).sum()
}

fn pairs(items: usize) -> f64 {
    items as f64 * (items - 1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::near::is_near;
    use super::*;

    #[test]
    fn the_error_of_a_mean_has_the_variance_of_one_item_less() {
        // The sample standard deviation of these is 2.138..., by NIST's definition.
        let scores = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        let found = Estimate::of(&scores);
        is_near(found.mean, 5.0);
        is_near(found.error.unwrap(), (32.0_f64 / 7.0 / 8.0).sqrt());
        assert_eq!(Estimate::of(&[]), Estimate { items: 0, mean: 0.0, error: None });
        assert_eq!(Estimate::of(&[0.5]), Estimate { items: 1, mean: 0.5, error: None });
    }

    #[test]
    fn clusters_of_one_item_are_no_clusters() {
        let scores = [0.0, 1.0, 1.0, 0.0, 1.0];
        let found = Estimate::clustered(&scores, &[4, 3, 2, 1, 0]);
        is_near(found.error.unwrap(), Estimate::of(&scores).error.unwrap());
    }

    #[test]
    fn items_that_repeat_each_other_count_hardly_more_than_one() {
        let once: Vec<f64> = (0..50).map(|item| f64::from(item % 3 == 0)).collect();
        let twice: Vec<f64> = once.iter().flat_map(|score| [*score, *score]).collect();
        let clusters: Vec<usize> = (0..100).map(|item| item / 2).collect();
        let [alone, found] = [Estimate::of(&once), Estimate::clustered(&twice, &clusters)];
        let ratio = found.error.unwrap() / alone.error.unwrap();
        assert!((0.98..1.0).contains(&ratio), "{ratio}");
        // All in one cluster: deviations add up to nothing.
        let one = Estimate::clustered(&twice, &[0; 100]).error.unwrap();
        assert!(one < alone.error.unwrap() / 3.0, "{one}");
    }
}
