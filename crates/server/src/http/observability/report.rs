//! The counts as people read them: pretty JSON, or a table.

use crate::http::observability::http::HttpCounts;
use crate::http::observability::sliding_window::Rates;
use api::metrics::{Stats, Times};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::Duration;

/// Width of the table's first column.
const LABEL: usize = 15;

/// The statistics of the server at one moment.
#[derive(Debug)]
pub(crate) struct StatsReport<'a> {
    pub model: &'a str,
    pub ready: bool,
    pub uptime: Duration,
    pub stats: Stats,
    pub rates: Rates,
    pub http: HttpCounts,
}

impl StatsReport<'_> {
    /// For programs, and people with one.
    pub fn json(&self) -> Value {
        let stats = &self.stats;
        json!({
            "model": self.model,
            "version": env!("CARGO_PKG_VERSION"),
            "ready": self.ready,
            "uptime_s": round(self.uptime.as_secs_f64()),
            "requests": self.requests(),
            "tokens": {
                "prompt": stats.prompt_tokens,
                "generated": stats.generation_tokens,
                "prompt_per_second": round(self.rates.prompt),
                "generated_per_second": round(self.rates.generated),
                "over_s": round(self.rates.over),
            },
            "kv_cache": self.cache(),
            "latency_s": {
                "time_to_first_token": times(&stats.first_token),
                "inter_token": times(&stats.between_tokens),
                "queue": times(&stats.queued),
                "end_to_end": times(&stats.end_to_end),
            },
            "steps": { "count": stats.steps, "mean_rows": round(stats.rows_per_step) },
            "preemptions": stats.preemptions,
            "speculation": {
                "drafted": stats.drafted,
                "accepted": stats.accepted,
                "acceptance_rate": share(stats.accepted, stats.drafted),
            },
            "errors": {
                "generations": stats.failed(),
                "http_4xx": self.http.refused,
                "http_5xx": self.http.failed,
            },
        })
    }

    fn requests(&self) -> Value {
        let counts = self.stats.by_outcome();
        let finished: Map<String, Value> =
            counts.map(|(label, count)| (label.into(), count.into())).collect();
        json!({
            "running": self.stats.running,
            "waiting": self.stats.waiting,
            "finished": finished,
            "rejected": self.stats.rejected,
            "answers_open": self.http.open,
            "clients_left": self.http.left,
        })
    }

    fn cache(&self) -> Value {
        let (stats, blocks) = (&self.stats, &self.stats.blocks);
        json!({
            "blocks_used": blocks.used,
            "blocks_cached": blocks.cached,
            "blocks_free": blocks.free,
            "usage": share(blocks.used, blocks.used + blocks.cached + blocks.free),
            "evicted_blocks": stats.evictions,
            "queried_tokens": stats.cache_queries,
            "hit_tokens": stats.cache_hits,
            "hit_rate": share(stats.cache_hits, stats.cache_queries),
        })
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let stats = &self.stats;
        let mut table = String::new();
        let mut row = |label: &str, text: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(table, "{label:LABEL$} {text}");
        };
        row("model", self.model.to_owned());
        row("state", if self.ready { "ready" } else { "not ready" }.to_owned());
        row("up", span(self.uptime));
        row("requests", format!("{} running, {} waiting", stats.running, stats.waiting));
        row("finished", self.finished());
        row("tokens/s", self.rates());
        row(
            "tokens",
            format!("{} prompt, {} generated", stats.prompt_tokens, stats.generation_tokens),
        );
        row("kv blocks", self.blocks());
        row("cache hits", part(stats.cache_hits, stats.cache_queries, "prompt tokens"));
        row("first token", median(&stats.first_token));
        row("between tokens", median(&stats.between_tokens));
        row("preemptions", stats.preemptions.to_string());
        row("speculation", part(stats.accepted, stats.drafted, "guesses"));
        row("errors", self.errors());
        table
    }

    fn finished(&self) -> String {
        let counts = self.stats.by_outcome();
        let all: Vec<String> = counts.map(|(label, count)| format!("{count} {label}")).collect();
        format!("{}; {} rejected", all.join(", "), self.stats.rejected)
    }

    fn rates(&self) -> String {
        let Rates { prompt, generated, over } = self.rates;
        format!("{prompt:.1} prompt, {generated:.1} generated (last {over:.0} s)")
    }

    fn blocks(&self) -> String {
        let blocks = &self.stats.blocks;
        format!("{} used, {} cached, {} free", blocks.used, blocks.cached, blocks.free)
    }

    fn errors(&self) -> String {
        let broken = self.stats.failed();
        format!("{broken} generations, {} 4xx, {} 5xx", self.http.refused, self.http.failed)
    }
}

fn times(times: &Times) -> Value {
    json!({
        "count": times.count,
        "mean": round(times.mean),
        "p50": round(times.p50),
        "p99": round(times.p99),
    })
}

/// Digits beyond these say nothing.
fn round(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

/// `null` where there is nothing to have a share of.
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
