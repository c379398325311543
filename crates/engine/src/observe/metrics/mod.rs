//! Metrics of the engine.
//!
//! The engine's thread reports; any thread reads. A report is a few atomic additions: it neither
//! allocates nor waits, so it may be made for every token. Names and buckets follow vLLM's
//! (`vllm/v1/metrics/loggers.py`), with the prefix `gannet:` and more buckets where a CPU is
//! slower.

mod cache;
mod disk;
mod drafts;
mod histogram;
mod names;
mod ranks;
mod register;
mod stats;
mod values;
mod weights;

use crate::observe::drafter::Drafter;
use crate::observe::outcome::Outcome;
use backend::{Memory, StreamStats, TableStats};
pub use cache::Lookup;
pub use drafts::{DraftStats, steps_by_drafts};
use histogram::Histogram;
use prometheus_client::registry::Registry;
pub use ranks::RankStep;
pub use stats::{BlockStats, StateStats, Stats, Times};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Store;
use values::MetricValues;

/// The metrics of one engine. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<MetricValues>);

/// Totals of a request that ended.
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

/// Size and time of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Rows of the batch.
    pub rows: usize,
    /// Sequences of the batch.
    pub sequences: usize,
    /// From plan to commit.
    pub took: Duration,
}

/// Reports. The engine's thread makes all of them but `rejected`.
impl Metrics {
    /// Counts a request that was rejected because the queue was full.
    pub fn rejected(&self) {
        self.0.counters.rejected.inc();
    }

    /// Counts a request admitted after `queued`, and what was found of its prompt. Must not be
    /// called again after a preemption.
    pub fn admitted(&self, queued: Duration, lookup: Lookup) {
        self.0.queued.add(queued.as_secs_f64());
        self.0.counters.cache_queries.inc_by(lookup.queried as u64);
        self.0.counters.cache_hits.inc_by(lookup.found as u64);
        self.0.counters.prompt_tokens.inc_by(lookup.found as u64);
        self.0.cache.add_lookup(lookup);
    }

    /// Counts a step, which is also progress.
    pub fn step(&self, step: Step) {
        self.0.counters.steps.inc();
        self.0.rows.add(step.rows as f64);
        self.0.sequences.add(step.sequences as f64);
        self.0.step.add(step.took.as_secs_f64());
        self.progressed();
    }

    /// Counts what the first of several ranks has sent and waited for since the step before.
    pub fn ranks(&self, step: RankStep) {
        self.0.ranks.add(step);
    }

    /// Counts a prompt: the time since admission, and the tokens that were computed.
    pub fn prompt_computed(&self, prefill: Duration, computed: usize) {
        self.0.counters.prompt_tokens.inc_by(computed as u64);
        self.0.prefill.add(prefill.as_secs_f64());
        add_rate(&self.0.prefill_rate, computed, prefill);
    }

    /// Counts the computed tokens of a prompt whose request ended before the whole was computed.
    pub fn prompt_cut(&self, computed: usize) {
        self.0.counters.prompt_tokens.inc_by(computed as u64);
    }

    /// Counts the first token of a request and its time to first token.
    pub fn first_token(&self, since_submitted: Duration) {
        self.0.counters.generation_tokens.inc();
        self.0.first_token.add(since_submitted.as_secs_f64());
    }

    /// Counts `tokens` further tokens of a request, `gap` after the one before. Several of one
    /// step, as speculation gives them, share the gap.
    pub fn tokens(&self, tokens: usize, gap: Duration) {
        self.0.counters.generation_tokens.inc_by(tokens as u64);
        self.0.gap.add_times(gap.as_secs_f64() / tokens.max(1) as f64, tokens as u64);
    }

    /// Counts the end of a submitted request, whether it was admitted or not.
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

    /// Counts preempted sequences.
    pub fn preempted(&self, sequences: usize) {
        self.0.counters.preemptions.inc_by(sequences as u64);
    }

    /// Counts evicted blocks.
    pub fn evicted(&self, blocks: usize) {
        self.0.counters.evictions.inc_by(blocks as u64);
    }

    /// Counts the tokens of `drafter` that a step has verified for a sequence, and those of them
    /// that were accepted.
    pub fn drafted(&self, drafter: Drafter, drafted: usize, accepted: usize) {
        self.0.drafts.add(drafter, drafted, accepted);
    }

    /// Sets the time of a batch of `drafter` that drafts one token over that of a step of one row.
    pub fn draft_cost(&self, drafter: Drafter, cost: f64) {
        self.0.drafts.set_cost(drafter, cost);
    }

    /// Sets the number of requests that run and wait.
    pub fn load(&self, running: usize, waiting: usize) {
        self.0.gauges.running.set(running as i64);
        self.0.gauges.waiting.set(waiting as i64);
    }

    /// Sets the windows of the groups of rows, the trunk's first. They are set once, before the
    /// first report; otherwise there is one group without a window.
    pub fn groups(&self, windows: &[Option<usize>]) {
        self.0.cache.set_groups(windows);
    }

    /// Sets the number of blocks of a group that are held, cached and free.
    pub fn blocks(&self, group: usize, used: usize, cached: usize, free: usize) {
        self.0.cache.set_blocks(group, used, cached, free);
    }

    /// Sets the number of blocks of the draft model's cache that are held, cached and free.
    pub fn draft_blocks(&self, used: usize, cached: usize, free: usize) {
        let gauges = &self.0.gauges;
        gauges.draft_used.set(used as i64);
        gauges.draft_cached.set(cached as i64);
        gauges.draft_free.set(free as i64);
    }

    /// Sets the bytes that the model holds on the device of this name.
    pub fn device_memory(&self, device: &'static str, memory: Memory) {
        let Memory { weights, workspace, cache, states } = memory;
        let kinds =
            [("weights", weights), ("workspace", workspace), ("cache", cache), ("states", states)];
        for (kind, bytes) in kinds {
            let gauge = self.0.memory.get_or_create_owned(&[("device", device), ("kind", kind)]);
            gauge.set(bytes as i64);
        }
    }

    /// Sets what has happened to experts that are read when tokens choose them.
    pub fn weights(&self, stats: StreamStats) {
        self.0.weights.set(stats);
    }

    /// Sets what has happened to tables whose rows stay on disk.
    pub fn tables(&self, stats: TableStats) {
        self.0.weights.set_tables(stats);
    }

    /// Sets the number of state slots that sequences hold, that hold snapshots, and that are free.
    pub fn states(&self, live: usize, kept: usize, free: usize) {
        self.0.cache.live_states.set(live as i64);
        self.0.cache.kept_states.set(kept as i64);
        self.0.cache.free_states.set(free as i64);
    }

    /// Counts evicted snapshots of states.
    pub fn states_evicted(&self, snapshots: usize) {
        self.0.cache.evicted_states.inc_by(snapshots as u64);
    }

    /// Sets the store whose counts are part of the metrics. Only the first one counts.
    pub fn store(&self, store: &Arc<Store>) {
        self.0.disk.store.get_or_init(|| Arc::clone(store));
    }

    /// Counts a sequence for which `bytes` came from the store.
    pub fn restored(&self, took: Duration, bytes: usize) {
        self.0.disk.restore.add(took.as_secs_f64());
        self.0.disk.restore_rate.add(bytes as f64 / took.as_secs_f64().max(1e-6));
    }

    /// Sets whether the engine has work. Sequences that wait for their readers are no work.
    pub fn working(&self, busy: bool) {
        let progress = &self.0.progress;
        if busy && !progress.busy.load(Ordering::Relaxed) {
            self.progressed();
        }
        progress.busy.store(busy, Ordering::Release);
    }

    /// Records progress. Every step does so itself.
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

/// Readings, on any thread.
impl Metrics {
    /// Time without progress while there is work; `None` while there is no work.
    pub fn stalled_for(&self) -> Option<Duration> {
        let progress = &self.0.progress;
        if !progress.busy.load(Ordering::Acquire) {
            return None;
        }
        let last = Duration::from_millis(progress.last.load(Ordering::Acquire));
        Some(progress.zero.elapsed().saturating_sub(last))
    }

    /// Registers the metrics under their names.
    pub fn register(&self, registry: &mut Registry) {
        register::register(&self.0, registry);
    }

    /// The current values.
    pub fn snapshot(&self) -> Stats {
        stats::of(&self.0)
    }
}

#[cfg(test)]
mod tests;
