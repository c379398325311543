//! A token bucket: it fills with time up to what a minute may take, and may be drawn below empty.

use std::time::{Duration, Instant};

const MINUTE: f64 = 60.0;

/// What remains of the amount per minute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    per_minute: f64,
    level: f64,
    at: Instant,
}

impl Bucket {
    /// A full one.
    pub fn new(per_minute: u32, now: Instant) -> Self {
        let per_minute = f64::from(per_minute.max(1));
        Self { per_minute, level: per_minute, at: now }
    }

    /// Adds the amount for the time since the last call.
    pub fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.level = (self.level + passed * self.per_minute / MINUTE).min(self.per_minute);
        self.at = self.at.max(now);
    }

    /// Takes `amount`; the level may fall below 0.
    pub fn take(&mut self, amount: f64) {
        self.level -= amount;
    }

    /// Whole units that are there.
    pub fn remaining(&self) -> u64 {
        // Sums of small parts fall short of the whole by a hair.
        (self.level + 1e-6).max(0.0) as u64
    }

    /// Time until `level` is reached.
    pub fn until(&self, level: f64) -> Duration {
        let missing = (level - self.level).max(0.0);
        Duration::try_from_secs_f64(missing * MINUTE / self.per_minute).unwrap_or(Duration::MAX)
    }

    /// Time until it is full.
    pub fn until_full(&self) -> Duration {
        self.until(self.per_minute)
    }

    /// What it holds when it is full.
    pub fn limit(&self) -> u64 {
        self.per_minute as u64
    }

    /// Whether nothing is missing.
    pub fn is_full(&self) -> bool {
        self.level + 1e-6 >= self.per_minute
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_a_minutes_worth_and_fills_with_time() {
        let start = Instant::now();
        let mut bucket = Bucket::new(60, start);
        bucket.take(60.0);
        assert_eq!((bucket.remaining(), bucket.until(1.0)), (0, Duration::from_secs(1)));
        bucket.fill(start + Duration::from_millis(2500));
        assert_eq!(bucket.remaining(), 2);
        bucket.fill(start + Duration::from_secs(3600));
        assert_eq!((bucket.remaining(), bucket.is_full()), (60, true));
    }

    #[test]
    fn what_was_overdrawn_is_waited_for() {
        let start = Instant::now();
        let mut bucket = Bucket::new(60, start);
        bucket.take(180.0);
        assert_eq!((bucket.remaining(), bucket.until(1.0)), (0, Duration::from_secs(121)));
        assert_eq!(bucket.until_full(), Duration::from_secs(180));
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let start = Instant::now() + Duration::from_secs(60);
        let mut bucket = Bucket::new(60, start);
        bucket.take(60.0);
        bucket.fill(start - Duration::from_secs(30));
        bucket.fill(start);
        assert_eq!(bucket.remaining(), 0);
    }
}
