//! The statistics as JSON and as a table.

use crate::http::observability::http::HttpMetrics;
use crate::http::observability::sliding_window::Rates;
use backend::StreamStats;
use engine::metrics::{BlockStats, DraftStats, StateStats, Stats, Times};
use serde_json::{Map, Value, json};
use std::time::Duration;
use store::{Failure, StoreStats};

/// Width of the table's first column.
const LABEL: usize = 15;

/// The statistics of the server at one moment.
#[derive(Debug)]
pub(crate) struct StatsReport<'a> {
    pub model: String,
    pub ready: bool,
    pub uptime: Duration,
    pub stats: Stats,
    pub rates: Rates,
    pub http: &'a HttpMetrics,
}

impl StatsReport<'_> {
    /// The statistics as JSON.
    pub fn json(&self) -> Value {
        let (stats, trunk) = (&self.stats, self.trunk());
        let usage = stats.blocks.iter().map(|it| share(it.used, it.total()));
        let usage = usage.filter_map(|share| share.as_f64()).reduce(f64::max);
        let causes = stats.by_cause().map(|(cause, count)| (cause.to_owned(), Value::from(count)));
        let finished =
            stats.by_outcome().map(|(label, count)| (label.to_owned(), Value::from(count)));
        json!({
            "model": self.model,
            "version": env!("CARGO_PKG_VERSION"),
            "ready": self.ready,
            "uptime_s": round(self.uptime.as_secs_f64()),
            "requests": {
                "running": stats.running,
                "waiting": stats.waiting,
                "finished": Map::from_iter(finished),
                "rejected": stats.rejected,
                "answers_open": self.http.open.get(),
                "clients_left": self.http.left.get(),
            },
            "tokens": {
                "prompt": stats.prompt_tokens,
                "generated": stats.generation_tokens,
                "prompt_per_second": round(self.rates.prompt),
                "generated_per_second": round(self.rates.generated),
                "over_s": round(self.rates.over),
            },
            "kv_cache": {
                "blocks_used": trunk.used,
                "blocks_cached": trunk.cached,
                "blocks_free": trunk.free,
                "groups": stats.blocks.iter().map(group).collect::<Value>(),
                "usage": usage,
                "evicted_blocks": stats.evictions,
                "queried_tokens": stats.cache_queries,
                "hit_tokens": stats.cache_hits,
                "hit_rate": share(stats.cache_hits, stats.cache_queries),
                "tokens_by_cause": Map::from_iter(causes),
            },
            "states": {
                "live": stats.states.live,
                "kept": stats.states.kept,
                "free": stats.states.free,
                "evicted_snapshots": stats.states.evicted,
            },
            "kv_disk": stats.disk.as_ref().map(|disk| disk_json(disk, &stats.restore)),
            "weights": stats.weights.as_ref().map(|it| weights_json(it, &stats.weights_reads)),
            "latency_s": {
                "time_to_first_token": times(&stats.first_token),
                "inter_token": times(&stats.between_tokens),
                "queue": times(&stats.queued),
                "end_to_end": times(&stats.end_to_end),
            },
            "steps": { "count": stats.steps, "mean_rows": round(stats.rows_per_step) },
            "preemptions": stats.preemptions,
            "speculation": {
                "drafted": stats.drafted(),
                "accepted": stats.accepted(),
                "acceptance_rate": share(stats.accepted(), stats.drafted()),
                "drafters": Map::from_iter(stats.drafts.iter().map(drafter)),
                "steps_by_drafts": stats.draft_lengths,
                "draft_model": draft_model(&stats.draft_blocks),
            },
            "errors": {
                "generations": stats.failed(),
                "http_4xx": self.http.responses(4),
                "http_5xx": self.http.responses(5),
            },
        })
    }

    /// The blocks of the group that holds all positions.
    fn trunk(&self) -> BlockStats {
        self.stats.blocks.first().copied().unwrap_or_default()
    }

    /// The statistics as a table for a terminal.
    pub fn text(&self) -> String {
        let stats = &self.stats;
        let finished = stats.by_outcome().map(|(label, count)| format!("{count} {label}"));
        let finished: Vec<String> = finished.collect();
        let Rates { prompt, generated, over } = self.rates;
        let (refused, failed) = (self.http.responses(4), self.http.responses(5));
        let rows = [
            ("model", self.model.clone()),
            ("state", if self.ready { "ready" } else { "not ready" }.to_owned()),
            ("up", span(self.uptime)),
            ("requests", format!("{} running, {} waiting", stats.running, stats.waiting)),
            ("finished", format!("{}; {} rejected", finished.join(", "), stats.rejected)),
            (
                "tokens/s",
                format!("{prompt:.1} prompt, {generated:.1} generated (last {over:.0} s)"),
            ),
            (
                "tokens",
                format!("{} prompt, {} generated", stats.prompt_tokens, stats.generation_tokens),
            ),
            ("kv blocks", stats.blocks.iter().map(blocks).collect::<Vec<_>>().join("; ")),
            ("states", states(&stats.states)),
            ("disk", stats.disk.as_ref().map_or("off".to_owned(), disk_text)),
            (
                "weights",
                stats.weights.as_ref().map_or("in memory".to_owned(), StreamStats::to_string),
            ),
            ("cache hits", part(stats.cache_hits, stats.cache_queries, "prompt tokens")),
            ("first token", median(&stats.first_token)),
            ("between tokens", median(&stats.between_tokens)),
            ("preemptions", stats.preemptions.to_string()),
            ("speculation", part(stats.accepted(), stats.drafted(), "drafted tokens")),
            ("errors", format!("{} generations, {refused} 4xx, {failed} 5xx", stats.failed())),
        ];
        rows.iter().map(|(label, text)| format!("{label:LABEL$} {text}\n")).collect()
    }
}

/// The blocks of the KV cache of the draft model, if there is one.
fn draft_model(blocks: &BlockStats) -> Option<Value> {
    let BlockStats { used, cached, free, .. } = blocks;
    let blocks = json!({"blocks_used": used, "blocks_cached": cached, "blocks_free": free});
    (used + cached + free > 0).then_some(blocks)
}

/// A drafter's tokens under its name.
fn drafter(of: &DraftStats) -> (String, Value) {
    let DraftStats { drafter, drafted, accepted, .. } = of;
    (drafter.name().to_owned(), json!({"drafted": drafted, "accepted": accepted}))
}

/// The blocks of a group of rows; without a `window`, all later positions look at its rows.
fn group(blocks: &BlockStats) -> Value {
    let BlockStats { window, used, cached, free } = blocks;
    json!({"window": window, "used": used, "cached": cached, "free": free})
}

fn blocks(blocks: &BlockStats) -> String {
    let BlockStats { window, used, cached, free } = blocks;
    let window = window.map(|window| format!(" in windows of {window}")).unwrap_or_default();
    format!("{used} used, {cached} cached, {free} free{window}")
}

fn states(states: &StateStats) -> String {
    let StateStats { live, kept, free, .. } = states;
    format!("{live} live, {kept} kept, {free} free")
}

/// The counts of streamed experts.
fn weights_json(weights: &StreamStats, reads: &Times) -> Value {
    json!({
        "slots": weights.slots,
        "slot_bytes": weights.slot_bytes,
        "expert_bytes": weights.expert_bytes,
        "hits": weights.hits,
        "misses": weights.misses,
        "hit_rate": share(weights.hits, weights.hits + weights.misses),
        "evictions": weights.evictions,
        "read_bytes": weights.read_bytes,
        "preloaded": weights.preloaded,
        "foreseen": weights.ahead,
        "foreseen_used": weights.ahead_used,
        "read_s": times(reads),
        "wait_s": round(weights.wait.as_secs_f64()),
    })
}

/// What is on disk and what was done there, `null` without a folder.
fn disk_json(disk: &StoreStats, restore: &Times) -> Value {
    let failures = Failure::ALL.into_iter().zip(disk.failures);
    let failures = failures.map(|((_, kind), count)| (kind.to_owned(), Value::from(count)));
    json!({
        "bytes": disk.bytes,
        "blocks": disk.blocks,
        "read_bytes": disk.read_bytes,
        "written_bytes": disk.written_bytes,
        "queries": disk.queries,
        "hits": disk.hits,
        "evictions": disk.evictions,
        "dropped_writes": disk.dropped_writes,
        "failures": Map::from_iter(failures),
        "restore_s": times(restore),
    })
}

fn disk_text(disk: &StoreStats) -> String {
    let mib = |bytes: u64| bytes >> 20;
    let StoreStats { bytes, blocks, hits, queries, .. } = *disk;
    let failed: u64 = disk.failures.iter().sum();
    let (read, written) = (mib(disk.read_bytes), mib(disk.written_bytes));
    format!(
        "{} MiB, {blocks} blocks; {hits} of {queries} requests; {read} MiB read, {written} written; \
         {failed} failures",
        mib(bytes)
    )
}

fn times(times: &Times) -> Value {
    json!({
        "count": times.count,
        "mean": round(times.mean),
        "p50": round(times.p50),
        "p99": round(times.p99),
    })
}

/// `number` with six decimal places.
fn round(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

/// `part` of `whole`; `null` if `whole` is 0.
fn share(part: u64, whole: u64) -> Value {
    if whole == 0 { Value::Null } else { round(part as f64 / whole as f64).into() }
}

fn part(part: u64, whole: u64, what: &str) -> String {
    let percent = 100.0 * part as f64 / whole.max(1) as f64;
    format!("{part} of {whole} {what} ({percent:.1} %)")
}

fn median(times: &Times) -> String {
    if times.count == 0 {
        return "-".to_owned();
    }
    let ms = |seconds: f64| 1e3 * seconds;
    format!("{:.1} ms in the middle, {:.1} ms at 99 %", ms(times.p50), ms(times.p99))
}

fn span(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    match (minutes / 1440, minutes / 60 % 24, minutes % 60) {
        (0, 0, 0) => format!("{} s", time.as_secs()),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units_at_most() {
        for (seconds, expected) in
            [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3660, "1 h 1 min"), (90_000, "1 d 1 h")]
        {
            assert_eq!(span(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn a_share_of_nothing_is_null() {
        assert_eq!(share(0, 0), Value::Null);
        assert_eq!(share(1, 3), json!(0.333333));
    }
}
