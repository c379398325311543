//! What the first of several ranks sends, and how long it waits for the others.

use super::histogram::Histogram;
use super::names;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// What the first rank has done since the step before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankStep {
    /// The time since then, without the time in which no step was under way.
    pub took: Duration,
    /// The part of it in which it waited for other ranks.
    pub waited: Duration,
    /// Bytes that it sent.
    pub bytes: u64,
}

/// The metrics of the first of several ranks; all are 0 where there is one.
#[derive(Debug)]
pub(super) struct RankMetrics {
    pub step: Histogram,
    pub waited: Counter<f64, AtomicU64>,
    pub bytes: Counter,
    pub idle: Gauge<f64, AtomicU64>,
}

/// Part of the last step in the mean of the shares of time in which the first rank waits.
const NEWEST: f64 = 1.0 / 16.0;

impl Default for RankMetrics {
    fn default() -> Self {
        let step = Histogram::new(names::SECONDS_BETWEEN_TOKENS);
        Self { step, waited: Counter::default(), bytes: Counter::default(), idle: Gauge::default() }
    }
}

impl RankMetrics {
    pub fn add(&self, step: RankStep) {
        let RankStep { took, waited, bytes } = step;
        let waited = waited.min(took);
        self.step.add((took - waited).as_secs_f64());
        self.waited.inc_by(waited.as_secs_f64());
        self.bytes.inc_by(bytes);
        if !took.is_zero() {
            let share = waited.as_secs_f64() / took.as_secs_f64();
            self.idle.set(self.idle.get() + NEWEST * (share - self.idle.get()));
        }
    }
}
