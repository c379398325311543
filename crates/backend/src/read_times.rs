//! Times of reads, counted in buckets, so that nothing is allocated.

use std::time::Duration;

/// How long reads took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadTimes {
    /// Reads by the first of [`ReadTimes::BOUNDS`] that they did not exceed; the last count is of
    /// reads that exceeded all.
    pub counts: [u64; ReadTimes::BOUNDS.len() + 1],
    /// Sum of the times.
    pub sum: Duration,
}

impl ReadTimes {
    /// Bounds of the buckets in seconds, ascending.
    pub const BOUNDS: [f64; 19] = [
        0.0001, 0.00025, 0.0005, 0.001, 0.0015, 0.0025, 0.004, 0.006, 0.01, 0.015, 0.025, 0.04,
        0.06, 0.1, 0.15, 0.25, 0.5, 1.0, 5.0,
    ];

    /// Counts a read.
    pub fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        self.counts[Self::BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
        self.sum += took;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_counted_under_the_first_bound_that_it_does_not_exceed() {
        let mut times = ReadTimes::default();
        for micros in [1, 100, 101, 6000, 60_000_000] {
            times.add(Duration::from_micros(micros));
        }
        let counted = times.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let counted: Vec<_> = counted.map(|(bucket, count)| (bucket, *count)).collect();
        assert_eq!(counted, [(0, 2), (1, 1), (7, 1), (19, 1)]);
        assert_eq!(times.sum, Duration::from_micros(60_006_202));
    }
}
