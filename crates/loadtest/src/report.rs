//! The measures of a run as a table and as JSON.

use super::LoadSpec;
use super::drive::{LoadRun, RunEnd};
use super::measures::{LoadSummary, Percentiles, rounded};
use super::plot;
use super::target::Target;
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
        json!({
            "url": self.target.base,
            "model": self.target.model,
            "load": self.load_json(),
            "ended": match run.ended {
                RunEnd::Done => "done",
                RunEnd::Deadline => "deadline",
                RunEnd::Interrupted => "interrupted",
            },
            "duration_s": run.seconds,
            "completed": summary.completed,
            "failed": summary.failed,
            "unfinished": run.unfinished,
            "errors": summary.errors,
            "short_answers": summary.short,
            "uncounted_answers": summary.uncounted,
            "prompt_tokens": summary.prompt_tokens,
            "cached_tokens": summary.cached_tokens,
            "output_tokens": summary.output_tokens,
            "output_events": summary.events,
            "requests_per_second": self.rate(summary.completed),
            "prompt_tokens_per_second": self.rate(summary.prompt_tokens),
            "output_tokens_per_second": self.rate(summary.output_tokens),
            "good_requests": summary.good,
            "goodput_per_second": summary.good.map(|good| self.rate(good)),
            "ttft_ms": summary.ttft,
            "itl_ms": summary.itl,
            "tpot_ms": summary.tpot,
            "e2el_ms": summary.e2el,
            "late_ms": self.late(),
        })
    }

    fn load_json(&self) -> Value {
        let load = self.load;
        json!({
            "endpoint": self.target.endpoint.name(),
            "requests": load.requests,
            "concurrency": load.at_once(),
            "rate": load.rate,
            "prompt": load.prompt.to_string(),
            "output": load.output.to_string(),
            "shared_prefix": load.shared_prefix,
            "warmup": load.warmup,
            "seed": load.seed,
            "prefix_seed": load.prefix_seed.unwrap_or(load.seed),
            "temperature": load.temperature,
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
        if let Some(good) = summary.good {
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
            ("time to first token", summary.ttft),
            ("inter-token latency", summary.itl),
            ("time per output token", summary.tpot),
            ("end-to-end latency", summary.e2el),
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
        if summary.short > 0 {
            let _ = writeln!(text, "\n{} answers ended before the requested length", summary.short);
        }
        if summary.uncounted > 0 {
            let what = "answers without usage: ids sent and events received are counted";
            let _ = writeln!(text, "\n{} {what}", summary.uncounted);
        }
    }

    /// Send delays at a rate: requests are late where the concurrency limit holds them back, or
    /// where this process gets no time to run.
    fn late(&self) -> Option<Percentiles> {
        self.load.rate.and(self.summary.late)
    }

    fn rate(&self, count: usize) -> f64 {
        rounded(count as f64 / self.run.seconds.max(1e-9))
    }
}
