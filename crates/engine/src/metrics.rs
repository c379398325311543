//! What the engine counts as it works, for whoever watches it.
//!
//! The engine's thread reports; any thread reads. A report is a few atomic additions: it neither
//! allocates nor waits, so that it may be made for every token. Names and buckets follow vLLM's
//! (`vllm/v1/metrics/loggers.py`), with the prefix `gannet:` and more buckets where a CPU is slower.

mod histogram;
mod names;
mod stats;

use crate::outcome::Outcome;
use histogram::Histogram;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
pub use stats::{BlockStats, Stats, Times};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The counts of one engine. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Inner>);

/// What a request came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTotals {
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// Tokens it generated.
    pub generated: usize,
    /// From submission to the end.
    pub total: Duration,
    /// From the first token to the end; zero if there was none.
    pub decode: Duration,
}

/// What one step computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Rows of the batch: tokens that went through the model.
    pub rows: usize,
    /// Sequences they belonged to.
    pub sequences: usize,
    /// From plan to commit.
    pub took: Duration,
}

type Finishes = Family<[(&'static str, &'static str); 1], Counter>;

#[derive(Debug)]
struct Inner {
    prompt_tokens: Counter,
    generation_tokens: Counter,
    cache_queries: Counter,
    cache_hits: Counter,
    finishes: Finishes,
    /// The members of `finishes`, by outcome: found without hashing.
    finished: [Counter; Outcome::LABELS.len()],
    rejected: Counter,
    preemptions: Counter,
    evictions: Counter,
    drafted: Counter,
    accepted: Counter,
    steps: Counter,

    running: Gauge,
    waiting: Gauge,
    used: Gauge,
    cached: Gauge,
    free: Gauge,
    total: Gauge,
    usage: Gauge<f64, AtomicU64>,

    first_token: Histogram,
    gap: Histogram,
    queued: Histogram,
    prefill: Histogram,
    decode: Histogram,
    end_to_end: Histogram,
    prefill_rate: Histogram,
    decode_rate: Histogram,
    rows: Histogram,
    sequences: Histogram,
    step: Histogram,
    prompt_length: Histogram,
    generated_length: Histogram,

    progress: Progress,
}

impl Default for Inner {
    fn default() -> Self {
        let finishes = Finishes::default();
        let finished = Outcome::LABELS
            .map(|label| finishes.get_or_create_owned(&[("finished_reason", label)]));
        Self {
            prompt_tokens: Counter::default(),
            generation_tokens: Counter::default(),
            cache_queries: Counter::default(),
            cache_hits: Counter::default(),
            finishes,
            finished,
            rejected: Counter::default(),
            preemptions: Counter::default(),
            evictions: Counter::default(),
            drafted: Counter::default(),
            accepted: Counter::default(),
            steps: Counter::default(),
            running: Gauge::default(),
            waiting: Gauge::default(),
            used: Gauge::default(),
            cached: Gauge::default(),
            free: Gauge::default(),
            total: Gauge::default(),
            usage: Gauge::default(),
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
            progress: Progress::default(),
        }
    }
}

/// When something last went on, in milliseconds since a time of its own.
#[derive(Debug)]
struct Progress {
    zero: Instant,
    busy: AtomicBool,
    last: AtomicU64,
}

impl Default for Progress {
    fn default() -> Self {
        Self { zero: Instant::now(), busy: AtomicBool::new(false), last: AtomicU64::new(0) }
    }
}

/// Reports. All are made by the engine's thread, but for `rejected`.
impl Metrics {
    /// The queue was full: a request was refused when it was submitted.
    pub fn rejected(&self) {
        self.0.rejected.inc();
    }

    /// A request got its place after `queued`. Of its prompt, `queried` tokens were looked up in
    /// the cache, and `cached` of them found. Not to be called again after a preemption.
    pub fn admitted(&self, queued: Duration, queried: usize, cached: usize) {
        self.0.queued.add(queued.as_secs_f64());
        self.0.cache_queries.inc_by(queried as u64);
        self.0.cache_hits.inc_by(cached as u64);
        self.0.prompt_tokens.inc_by(cached as u64);
    }

    /// A step was computed, which is progress too.
    pub fn step(&self, step: Step) {
        self.0.steps.inc();
        self.0.rows.add(step.rows as f64);
        self.0.sequences.add(step.sequences as f64);
        self.0.step.add(step.took.as_secs_f64());
        self.progressed();
    }

    /// A request has its first token `since_submitted` and `prefill` after it was admitted, for
    /// which `computed` tokens of its prompt went through the model.
    pub fn first_token(&self, since_submitted: Duration, prefill: Duration, computed: usize) {
        self.0.generation_tokens.inc();
        self.0.prompt_tokens.inc_by(computed as u64);
        self.0.first_token.add(since_submitted.as_secs_f64());
        self.0.prefill.add(prefill.as_secs_f64());
        add_rate(&self.0.prefill_rate, computed, prefill);
    }

    /// A request has `tokens` more, `gap` after the one before. Several at once, as speculation
    /// gives them, share the gap.
    pub fn tokens(&self, tokens: usize, gap: Duration) {
        self.0.generation_tokens.inc_by(tokens as u64);
        self.0.gap.add_times(gap.as_secs_f64() / tokens.max(1) as f64, tokens as u64);
    }

    /// A request that was submitted has ended, whether it was admitted or not.
    pub fn finished(&self, outcome: &Outcome, ended: RequestTotals) {
        self.0.finished[outcome.index()].inc();
        self.0.end_to_end.add(ended.total.as_secs_f64());
        self.0.prompt_length.add(ended.prompt_tokens as f64);
        self.0.generated_length.add(ended.generated as f64);
        if ended.generated > 1 {
            self.0.decode.add(ended.decode.as_secs_f64());
            add_rate(&self.0.decode_rate, ended.generated - 1, ended.decode);
        }
    }

    /// So many sequences were put back to wait because blocks ran out.
    pub fn preempted(&self, sequences: usize) {
        self.0.preemptions.inc_by(sequences as u64);
    }

    /// So many cached blocks were given up for others.
    pub fn evicted(&self, blocks: usize) {
        self.0.evictions.inc_by(blocks as u64);
    }

    /// Of `drafted` guessed tokens, the model agreed with `accepted`.
    pub fn drafted(&self, drafted: usize, accepted: usize) {
        self.0.drafted.inc_by(drafted as u64);
        self.0.accepted.inc_by(accepted as u64);
    }

    /// So many requests are computed now, and so many wait to be.
    pub fn load(&self, running: usize, waiting: usize) {
        self.0.running.set(running as i64);
        self.0.waiting.set(waiting as i64);
    }

    /// So many blocks belong to sequences now, hold what may be found again, or hold nothing.
    pub fn blocks(&self, used: usize, cached: usize, free: usize) {
        let total = used + cached + free;
        self.0.used.set(used as i64);
        self.0.cached.set(cached as i64);
        self.0.free.set(free as i64);
        self.0.total.set(total as i64);
        self.0.usage.set(used as f64 / total.max(1) as f64);
    }

    /// From now on there is work that the engine could do, or none. Work that only its readers
    /// hold up is none.
    pub fn working(&self, busy: bool) {
        let progress = &self.0.progress;
        if busy && !progress.busy.load(Ordering::Relaxed) {
            self.progressed();
        }
        progress.busy.store(busy, Ordering::Release);
    }

    /// Something went on. Every step says so by itself.
    pub fn progressed(&self) {
        let progress = &self.0.progress;
        let now = progress.zero.elapsed().as_millis() as u64;
        progress.last.store(now, Ordering::Release);
    }
}

fn add_rate(rates: &Histogram, tokens: usize, time: Duration) {
    if tokens > 0 && !time.is_zero() {
        rates.add(tokens as f64 / time.as_secs_f64());
    }
}

/// Readings, for any thread.
impl Metrics {
    /// How long there was work and nothing went on; `None` while there is no work.
    pub fn stalled_for(&self) -> Option<Duration> {
        let progress = &self.0.progress;
        if !progress.busy.load(Ordering::Acquire) {
            return None;
        }
        let last = Duration::from_millis(progress.last.load(Ordering::Acquire));
        Some(progress.zero.elapsed().saturating_sub(last))
    }

    /// Puts them under their names.
    pub fn register(&self, registry: &mut Registry) {
        names::register(&self.0, registry);
    }

    /// The numbers as they are now.
    pub fn snapshot(&self) -> Stats {
        stats::of(&self.0)
    }
}

#[cfg(test)]
mod tests;
