//! The metrics as plain numbers.

use super::cache::{CAUSES, GroupGauges};
use super::drafts::DraftStats;
use super::histogram::Histogram;
use super::values::MetricValues;
use crate::observe::outcome::Outcome;
use backend::StreamStats;
use store::StoreStats;

/// Counts since the engine started, and its current state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Requests being computed.
    pub running: u64,
    /// Requests waiting to be computed.
    pub waiting: u64,
    /// Blocks of the KV cache, by group of rows; the trunk's first.
    pub blocks: Vec<BlockStats>,
    /// Blocks of the KV cache of the draft model that hold all positions; none without one.
    pub draft_blocks: BlockStats,
    /// State slots.
    pub states: StateStats,
    /// Prompt tokens computed or found in the cache.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generation_tokens: u64,
    /// Prompt tokens looked up in the cache.
    pub cache_queries: u64,
    /// Prompt tokens found in the cache.
    pub cache_hits: u64,
    /// Prompt tokens looked up in the cache, in the order of [`Stats::by_cause`].
    pub lookups: [u64; CAUSES.len()],
    /// Requests that ended, in the order of [`Outcome::LABELS`].
    pub finished: [u64; Outcome::LABELS.len()],
    /// Requests rejected because the queue was full.
    pub rejected: u64,
    /// Sequences preempted for lack of blocks.
    pub preemptions: u64,
    /// Cached blocks evicted.
    pub evictions: u64,
    /// Drafted tokens, by drafter.
    pub drafts: Vec<DraftStats>,
    /// Sequences of steps by the number of drafted tokens that were verified for them, from 0 on.
    pub draft_lengths: Vec<u64>,
    /// Steps computed.
    pub steps: u64,
    /// Mean number of rows of a step.
    pub rows_per_step: f64,
    /// From submission to the first token.
    pub first_token: Times,
    /// From a token to the next.
    pub between_tokens: Times,
    /// From submission to admission.
    pub queued: Times,
    /// From submission to the end.
    pub end_to_end: Times,
    /// What the store under the prefix cache counted, if there is one.
    pub disk: Option<StoreStats>,
    /// From looking for a prefix on disk to the last block that was restored.
    pub restore: Times,
    /// What has happened to streamed experts; `None` where all weights are in memory.
    pub weights: Option<StreamStats>,
    /// Times of reading streamed experts, each with packing.
    pub weights_reads: Times,
}

/// Blocks of a group of rows of the KV cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockStats {
    /// Number of positions that look at a row; `None` for all that follow.
    pub window: Option<usize>,
    /// Held by sequences.
    pub used: u64,
    /// Held by no sequence and kept as prefix cache.
    pub cached: u64,
    /// Empty.
    pub free: u64,
}

/// Slots of the states of sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateStats {
    /// Held by sequences.
    pub live: u64,
    /// Hold snapshots.
    pub kept: u64,
    /// Empty.
    pub free: u64,
    /// Snapshots evicted so far.
    pub evicted: u64,
}

/// Summary of a histogram of times, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// Number of observations.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median, estimated from the buckets.
    pub p50: f64,
    /// 99th percentile, estimated from the buckets.
    pub p99: f64,
}

impl BlockStats {
    /// Number of blocks.
    pub fn total(&self) -> u64 {
        self.used + self.cached + self.free
    }
}

impl Stats {
    /// Drafted tokens that were verified.
    pub fn drafted(&self) -> u64 {
        self.drafts.iter().map(|it| it.drafted).sum()
    }

    /// Drafted tokens that were accepted.
    pub fn accepted(&self) -> u64 {
        self.drafts.iter().map(|it| it.accepted).sum()
    }

    /// Prompt tokens looked up in the cache, by what became of them: `found`; held by blocks but
    /// computed again because rows of a group with a window are missing (`no_rows`), or because
    /// there is no snapshot of the states (`no_state`); `unknown`.
    pub fn by_cause(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CAUSES.into_iter().zip(self.lookups)
    }

    /// Requests that ended, by the label of their outcome.
    pub fn by_outcome(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Outcome::LABELS.into_iter().zip(self.finished)
    }

    /// Requests that ended with an error.
    pub fn failed(&self) -> u64 {
        self.finished[Outcome::Failed(String::new()).index()]
    }
}

pub(super) fn of(values: &MetricValues) -> Stats {
    let MetricValues { counters, gauges, cache, .. } = values;
    let whole = |gauge: i64| u64::try_from(gauge).unwrap_or(0);
    let blocks = |group: &GroupGauges| BlockStats {
        window: group.window,
        used: whole(group.used.get()),
        cached: whole(group.cached.get()),
        free: whole(group.free.get()),
    };
    Stats {
        running: whole(gauges.running.get()),
        waiting: whole(gauges.waiting.get()),
        blocks: cache.groups().iter().map(blocks).collect(),
        draft_blocks: BlockStats {
            window: None,
            used: whole(gauges.draft_used.get()),
            cached: whole(gauges.draft_cached.get()),
            free: whole(gauges.draft_free.get()),
        },
        states: StateStats {
            live: whole(cache.live_states.get()),
            kept: whole(cache.kept_states.get()),
            free: whole(cache.free_states.get()),
            evicted: cache.evicted_states.get(),
        },
        lookups: cache.lookups(),
        prompt_tokens: counters.prompt_tokens.get(),
        generation_tokens: counters.generation_tokens.get(),
        cache_queries: counters.cache_queries.get(),
        cache_hits: counters.cache_hits.get(),
        finished: values.finished.each_ref().map(|count| count.get()),
        rejected: counters.rejected.get(),
        preemptions: counters.preemptions.get(),
        evictions: counters.evictions.get(),
        drafts: values.drafts.stats().collect(),
        draft_lengths: values.drafts.numbers().collect(),
        steps: counters.steps.get(),
        rows_per_step: values.rows.mean(),
        first_token: times(&values.first_token),
        between_tokens: times(&values.gap),
        queued: times(&values.queued),
        end_to_end: times(&values.end_to_end),
        disk: values.disk.stats(),
        restore: times(&values.disk.restore),
        weights: values.weights.stats(),
        weights_reads: times(&super::weights::read_times(
            &values.weights.stats().unwrap_or_default(),
        )),
    }
}

fn times(histogram: &Histogram) -> Times {
    Times {
        count: histogram.count(),
        mean: histogram.mean(),
        p50: histogram.quantile(0.5),
        p99: histogram.quantile(0.99),
    }
}
