//! Median and range of repeated measurements.

use crate::measures::percentile;
use serde::Serialize;

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct MedianRange {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl MedianRange {
    /// Of at least one value.
    pub fn of(values: &[f64]) -> Self {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let [min, median, max] = [0.0, 0.5, 1.0].map(|share| percentile(&values, share));
        Self { median, min, max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let spread = MedianRange::of(&[4.0, 1.0, 2.0, 3.0]);
        assert_eq!((spread.median, spread.min, spread.max), (2.5, 1.0, 4.0));
    }
}
