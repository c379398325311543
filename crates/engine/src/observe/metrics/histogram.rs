//! A histogram that one thread adds to while others read.
//!
//! The histogram of `prometheus-client` takes a lock and cannot be read back. This one keeps its
//! buckets as atomic counts and is registered in the same way.

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Observations, counted under the first of the ascending bounds that is not below them. Clones
/// share the counts.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    bounds: &'static [f64],
    /// One more than bounds: the last is for values above all bounds.
    counts: Arc<[AtomicU64]>,
    /// Bits of an f64.
    sum: Arc<AtomicU64>,
}

impl Histogram {
    pub fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: Arc::default() }
    }

    /// A histogram of observations that were counted elsewhere, under the same bounds.
    pub fn of(bounds: &'static [f64], counts: &[u64], sum: f64) -> Self {
        let counts = counts.iter().map(|count| AtomicU64::new(*count)).collect();
        Self { bounds, counts, sum: Arc::new(AtomicU64::new(sum.to_bits())) }
    }

    pub fn add(&self, value: f64) {
        self.add_times(value, 1);
    }

    /// Adds the same observation several times.
    pub fn add_times(&self, value: f64, times: u64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        self.counts[bucket].fetch_add(times, Ordering::Relaxed);
        let more = value * times as f64;
        // NaN or infinity would spoil the sum for good.
        let add = |sum| more.is_finite().then(|| (f64::from_bits(sum) + more).to_bits());
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    pub fn mean(&self) -> f64 {
        self.sum() / self.count().max(1) as f64
    }

    /// Value that about this share of the observations did not exceed: interpolated within its
    /// bucket, and the last bound for values above it.
    pub fn quantile(&self, share: f64) -> f64 {
        let wanted = share * self.count() as f64;
        let mut before = 0.0;
        let mut low = 0.0;
        for (&high, count) in self.bounds.iter().zip(&*self.counts) {
            let count = count.load(Ordering::Relaxed) as f64;
            if count > 0.0 && before + count >= wanted {
                return low + (high - low) * ((wanted - before) / count);
            }
            before += count;
            low = high;
        }
        if before < wanted { low } else { 0.0 }
    }

    fn sum(&self) -> f64 {
        f64::from_bits(self.sum.load(Ordering::Relaxed))
    }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        // Summed from the same reading, since scrapers reject a count that contradicts the buckets.
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(self.sum(), count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: &[f64] = &[1.0, 2.0, 4.0];

    fn check(values: &[f64], share: f64, expected: f64) {
        let histogram = Histogram::new(BOUNDS);
        values.iter().for_each(|&value| histogram.add(value));
        assert_eq!(histogram.quantile(share), expected, "{share} of {values:?}");
    }

    #[test]
    fn quantiles_lie_in_the_bucket_of_their_observation() {
        check(&[], 0.5, 0.0);
        check(&[1.0], 1.0, 1.0);
        check(&[0.5, 3.0], 0.5, 1.0);
        check(&[3.0, 3.0, 3.0, 3.0], 0.5, 3.0);
        check(&[0.5, 0.5, 0.5, 3.0], 0.99, 3.92);
        check(&[9.0], 0.5, 4.0);
    }

    #[test]
    fn several_of_one_value_count_as_often() {
        let histogram = Histogram::new(BOUNDS);
        histogram.add_times(0.5, 3);
        histogram.add(2.5);
        assert_eq!((histogram.count(), histogram.mean()), (4, 1.0));
    }

    #[test]
    fn what_is_no_number_is_still_counted() {
        let histogram = Histogram::new(BOUNDS);
        histogram.add(f64::NAN);
        histogram.add(f64::INFINITY);
        histogram.add(3.0);
        assert_eq!((histogram.count(), histogram.mean()), (3, 1.0));
    }
}
