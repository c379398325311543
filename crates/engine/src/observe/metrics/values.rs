//! The values of the metrics of one engine.

use super::cache::CacheMetrics;
use super::disk::DiskMetrics;
use super::drafts::DraftMetrics;
use super::histogram::Histogram;
use super::names;
use super::ranks::RankMetrics;
use super::weights::WeightsMetrics;
use crate::observe::outcome::Outcome;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

type Finishes = Family<[(&'static str, &'static str); 1], Counter>;

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub prompt_tokens: Counter,
    pub generation_tokens: Counter,
    pub cache_queries: Counter,
    pub cache_hits: Counter,
    pub rejected: Counter,
    pub preemptions: Counter,
    pub evictions: Counter,
    pub steps: Counter,
}

#[derive(Debug, Default)]
pub(super) struct Gauges {
    pub running: Gauge,
    pub waiting: Gauge,
    /// Blocks of the cache of the draft model.
    pub draft_used: Gauge,
    pub draft_cached: Gauge,
    pub draft_free: Gauge,
}

/// The values of the metrics of one engine.
#[derive(Debug)]
pub(super) struct MetricValues {
    pub counters: Counters,
    pub gauges: Gauges,
    pub drafts: DraftMetrics,
    pub ranks: RankMetrics,
    pub cache: CacheMetrics,
    pub disk: DiskMetrics,
    pub weights: WeightsMetrics,
    pub memory: Family<[(&'static str, &'static str); 2], Gauge>,
    pub finishes: Finishes,
    /// The members of `finishes` by outcome, found without hashing.
    pub finished: [Counter; Outcome::LABELS.len()],

    pub first_token: Histogram,
    pub gap: Histogram,
    pub queued: Histogram,
    pub prefill: Histogram,
    pub decode: Histogram,
    pub end_to_end: Histogram,
    pub prefill_rate: Histogram,
    pub decode_rate: Histogram,
    pub rows: Histogram,
    pub sequences: Histogram,
    pub step: Histogram,
    pub prompt_length: Histogram,
    pub generated_length: Histogram,

    pub progress: ProgressClock,
}

impl Default for MetricValues {
    fn default() -> Self {
        let finishes = Finishes::default();
        let finished = Outcome::LABELS
            .map(|label| finishes.get_or_create_owned(&[("finished_reason", label)]));
        Self {
            counters: Counters::default(),
            gauges: Gauges::default(),
            drafts: DraftMetrics::default(),
            ranks: RankMetrics::default(),
            cache: CacheMetrics::default(),
            disk: DiskMetrics::default(),
            weights: WeightsMetrics::default(),
            memory: Family::default(),
            finishes,
            finished,
            first_token: Histogram::new(names::SECONDS_TO_FIRST_TOKEN),
            gap: Histogram::new(names::SECONDS_BETWEEN_TOKENS),
            queued: Histogram::new(names::SECONDS_OF_A_REQUEST),
            prefill: Histogram::new(names::SECONDS_OF_A_REQUEST),
            decode: Histogram::new(names::SECONDS_OF_A_REQUEST),
            end_to_end: Histogram::new(names::SECONDS_OF_A_REQUEST),
            prefill_rate: Histogram::new(names::TOKENS_PER_SECOND),
            decode_rate: Histogram::new(names::TOKENS_PER_SECOND),
            rows: Histogram::new(names::TOKENS_OF_A_STEP),
            sequences: Histogram::new(names::TOKENS_OF_A_STEP),
            step: Histogram::new(names::SECONDS_BETWEEN_TOKENS),
            prompt_length: Histogram::new(names::TOKENS_OF_A_REQUEST),
            generated_length: Histogram::new(names::TOKENS_OF_A_REQUEST),
            progress: ProgressClock::default(),
        }
    }
}

/// Time of the last progress, in milliseconds since `zero`.
#[derive(Debug)]
pub(super) struct ProgressClock {
    pub zero: Instant,
    pub busy: AtomicBool,
    pub last: AtomicU64,
}

impl Default for ProgressClock {
    fn default() -> Self {
        Self { zero: Instant::now(), busy: AtomicBool::new(false), last: AtomicU64::new(0) }
    }
}
