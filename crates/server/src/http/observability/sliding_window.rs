//! Token rates of the last minute, from periodic samples of the counts.

use engine::metrics::{Metrics, Stats};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Length of the window.
const WINDOW: Duration = Duration::from_secs(60);
/// Time between two samples.
const PERIOD: Duration = Duration::from_secs(5);

/// The samples of the last minute, oldest first; at least one.
#[derive(Debug)]
pub(crate) struct SlidingWindow(Mutex<VecDeque<Sample>>);

/// The counts at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    at: Instant,
    prompt: u64,
    generated: u64,
}

/// Tokens per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Of prompts.
    pub prompt: f64,
    /// Generated.
    pub generated: f64,
    /// Seconds that the rates are the mean of.
    pub over: f64,
}

impl Sample {
    /// The counts of `stats` as those of this moment.
    pub fn of(stats: &Stats) -> Self {
        let at = Instant::now();
        Self { at, prompt: stats.prompt_tokens, generated: stats.generation_tokens }
    }
}

impl SlidingWindow {
    /// A window that begins with `stats`.
    pub fn new(stats: &Stats) -> Self {
        Self(Mutex::new(VecDeque::from([Sample::of(stats)])))
    }

    /// Samples `metrics` periodically, for ever.
    pub async fn look(&self, metrics: &Metrics) -> Infallible {
        loop {
            tokio::time::sleep(PERIOD).await;
            self.note(Sample::of(&metrics.snapshot()));
        }
    }

    /// Adds `sample`, and removes those older than the window, except the newest of them.
    fn note(&self, sample: Sample) {
        let mut samples = self.samples();
        samples.push_back(sample);
        let old = |one: &Sample| sample.at.saturating_duration_since(one.at) >= WINDOW;
        while samples.get(1).is_some_and(old) {
            samples.pop_front();
        }
    }

    /// The rates up to `now`.
    pub fn rates(&self, now: Sample) -> Rates {
        let first = self.samples().front().copied().unwrap_or(now);
        let over = now.at.saturating_duration_since(first.at).as_secs_f64();
        let rate = |now: u64, first: u64| now.saturating_sub(first) as f64 / over.max(1e-3);
        Rates {
            prompt: rate(now.prompt, first.prompt),
            generated: rate(now.generated, first.generated),
            over,
        }
    }

    fn samples(&self) -> MutexGuard<'_, VecDeque<Sample>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten tokens a second for so many seconds, then none.
    fn check(busy: u64, idle: u64, expected: f64, over: f64) {
        let window = SlidingWindow::new(&Stats::default());
        let start = window.samples()[0].at;
        let at = |second: u64| {
            let generated = second.min(busy) * 10;
            Sample { at: start + Duration::from_secs(second), prompt: 0, generated }
        };
        (1..=busy + idle)
            .filter(|second| second % 5 == 0)
            .for_each(|second| window.note(at(second)));
        let rates = window.rates(at(busy + idle));
        assert_eq!(rates, Rates { prompt: 0.0, generated: expected, over });
        assert!(window.samples().len() <= 14);
    }

    #[test]
    fn rates_are_of_the_last_minute() {
        check(20, 0, 10.0, 20.0);
        check(600, 0, 10.0, 60.0);
        check(600, 30, 5.0, 60.0);
        check(600, 90, 0.0, 60.0);
    }

    #[test]
    fn a_moment_is_no_division_by_zero() {
        let window = SlidingWindow::new(&Stats::default());
        let sample = window.samples()[0];
        assert_eq!(window.rates(sample), Rates::default());
    }
}
