//! The measures of a run as a table and as JSON.

use super::measures::{LoadSummary, Percentiles, rounded};
use super::plot;
use super::run::{LoadRun, RunEnd};
use super::target::Target;
use crate::spec::LoadSpec;
use serde_json::{Value, json};
use std::fmt::Write;

/// A run with its load, as text.
#[derive(Clone, Debug)]
pub struct LoadReport<'a> {
    pub(super) target: &'a Target,
    pub(super) load: &'a LoadSpec,
    pub(super) run: &'a LoadRun,
    /// The run in numbers.
    pub summary: LoadSummary,
}

impl LoadReport<'_> {
    /// Times to first token and the distribution of gaps as an SVG picture.
    pub fn svg(&self) -> String {
        plot::svg(self.run, &self.title())
    }

    /// The load in one line.
    fn title(&self) -> String {
        let load = self.load;
        let pace = match load.rate {
            Some(rate) => format!("{rate} per second"),
            None => format!("{} at once", load.at_once()),
        };
        let prefix = match load.shared_prefix {
            0 => String::new(),
            shared => format!("{shared} shared + "),
        };
        format!(
            "{} at {}: {} requests, {pace}, prompts of {prefix}{} tokens, answers of {}",
            self.target.model, self.target.base, load.requests, load.prompt, load.output
        )
    }

    /// All numbers as JSON.
    pub fn to_json(&self) -> Value {
        let (run, summary) = (self.run, &self.summary);
        let mut json = json!({
            "url": self.target.base,
            "model": self.target.model,
            "load": self.load_json(),
            "ended": run.ended,
            "duration_s": run.seconds,
            "unfinished": run.unfinished,
            "requests_per_second": self.rate(summary.completed),
            "prompt_tokens_per_second": self.rate(summary.prompt_tokens),
            "output_tokens_per_second": self.rate(summary.output_tokens),
            "goodput_per_second": summary.good_requests.map(|good| self.rate(good)),
        });
        if let (Value::Object(json), Value::Object(counts)) = (&mut json, json!(summary)) {
            json.extend(counts);
        }
        json["late_ms"] = json!(self.late());
        json
    }

    fn load_json(&self) -> Value {
        let load = self.load;
        json!({
            "endpoint": self.target.endpoint,
            "requests": load.requests,
            "concurrency": load.at_once(),
            "rate": load.rate,
            "prompt": load.prompt.to_string(),
            "output": load.output.to_string(),
            "shared_prefix": load.shared_prefix,
            "warmup": load.warmup,
            "seed": load.seed,
            "prefix_seed": load.prefix_seed(),
            "temperature": load.temp,
            "vocabulary": self.target.vocabulary,
        })
    }

    /// All numbers as a table.
    pub fn to_table(&self) -> String {
        let mut text = self.title();
        text.push_str("\n\n");
        self.counts(&mut text);
        self.rates(&mut text);
        self.times(&mut text);
        self.remarks(&mut text);
        text
    }

    fn counts(&self, text: &mut String) {
        let (run, summary) = (self.run, &self.summary);
        let _ = write!(text, "{} completed, {} failed", summary.completed, summary.failed);
        if run.unfinished > 0 {
            let _ = write!(text, ", {} unfinished", run.unfinished);
        }
        let why = match run.ended {
            RunEnd::Done => "",
            RunEnd::Deadline => " (time limit)",
            RunEnd::Interrupted => " (interrupted)",
        };
        let _ = writeln!(text, " in {:.2} s{why}", run.seconds);
        for (kind, errors) in &summary.errors {
            let _ = writeln!(text, "  {} {kind}: {}", errors.count, errors.example);
        }
    }

    fn rates(&self, text: &mut String) {
        let summary = &self.summary;
        let cached = match (summary.cached_tokens, summary.prompt_tokens) {
            (None, _) | (_, 0) => String::new(),
            (Some(cached), all) => {
                format!(", {:.0} % of them cached", 100.0 * cached as f64 / all as f64)
            }
        };
        let mut line = |name: &str, count: usize, more: &str| {
            let _ = writeln!(text, "{name:22}{:>10.2}  ({count}{more})", self.rate(count));
        };
        line("requests/s", summary.completed, "");
        line("prompt tokens/s", summary.prompt_tokens, &cached);
        line("output tokens/s", summary.output_tokens, "");
        if let Some(good) = summary.good_requests {
            line("goodput, requests/s", good, " within the limits");
        }
    }

    fn times(&self, text: &mut String) {
        let summary = &self.summary;
        if summary.completed == 0 {
            return;
        }
        let names = ["mean", "p50", "p90", "p95", "p99", "max"];
        let _ = write!(text, "\n{:22}", "milliseconds");
        let _ = writeln!(text, "{}", names.map(|name| format!("{name:>10}")).concat());
        let rows = [
            ("time to first token", summary.ttft_ms),
            ("inter-token latency", summary.itl_ms),
            ("time per output token", summary.tpot_ms),
            ("end-to-end latency", summary.e2el_ms),
            ("send delay", self.late()),
        ];
        for (name, spread) in rows {
            let Some(Percentiles { mean, p50, p90, p95, p99, max }) = spread else { continue };
            let values = [mean, p50, p90, p95, p99, max].map(|value| format!("{value:>10.2}"));
            let _ = writeln!(text, "{name:22}{}", values.concat());
        }
    }

    /// Notes that change the meaning of the numbers.
    fn remarks(&self, text: &mut String) {
        let summary = &self.summary;
        if summary.short_answers > 0 {
            let short = summary.short_answers;
            let _ = writeln!(text, "\n{short} answers ended before the requested length");
        }
        if summary.uncounted_answers > 0 {
            let what = "answers without usage: ids sent and events received are counted";
            let _ = writeln!(text, "\n{} {what}", summary.uncounted_answers);
        }
        if self.finds_prompts() {
            let what = "most of the prompts were in the server's cache: --seed S draws others";
            let _ = writeln!(text, "\n{what}");
        }
    }

    /// Whether the server's cache had most of what no other prompt of this run shares, as after a
    /// run with the same seed.
    fn finds_prompts(&self) -> bool {
        let shared = self.load.shared_prefix * self.summary.completed;
        let cached = self.summary.cached_tokens.unwrap_or(0).saturating_sub(shared);
        2 * cached > self.summary.prompt_tokens.saturating_sub(shared)
    }

    /// Send delays at a rate: requests are late where the concurrency limit holds them back, or
    /// where this process gets no time to run.
    fn late(&self) -> Option<Percentiles> {
        self.load.rate.and(self.summary.late_ms)
    }

    fn rate(&self, count: usize) -> f64 {
        rounded(count as f64 / self.run.seconds.max(1e-9))
    }
}
