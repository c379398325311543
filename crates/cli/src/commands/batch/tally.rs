//! Counts of a run, as text and as JSON.

use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Instant;

/// Counts of one run.
#[derive(Debug)]
pub(crate) struct BatchTally {
    /// All lines.
    pub lines: u64,
    /// Lines that earlier runs answered.
    answered_before: u64,
    /// Lines that the server refused in earlier runs.
    refused_before: u64,
    answered: u64,
    /// Refused and failed lines.
    pub failed: u64,
    usage: BatchUsage,
    /// Tokens of all requests, without an answer too, where there are such.
    all: Option<BatchUsage>,
    started: Instant,
}

/// Tokens as the server counts them.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BatchUsage {
    #[serde(alias = "input_tokens")]
    pub prompt_tokens: u64,
    #[serde(alias = "output_tokens")]
    pub completion_tokens: u64,
}

impl BatchTally {
    /// Starts the clock.
    pub fn new(lines: u64, answered_before: u64, refused_before: u64) -> Self {
        let (usage, started) = (BatchUsage::default(), Instant::now());
        let (answered, failed, all) = (0, 0, None);
        Self { lines, answered_before, refused_before, answered, failed, usage, all, started }
    }

    /// Takes the tokens of all requests, where requests have no answer.
    pub fn set_all(&mut self, all: BatchUsage) {
        self.all = Some(all);
    }

    /// Counts an answer.
    pub fn add(&mut self, usage: BatchUsage) {
        self.answered += 1;
        self.usage.prompt_tokens += usage.prompt_tokens;
        self.usage.completion_tokens += usage.completion_tokens;
    }

    /// Finished lines.
    pub fn done(&self) -> u64 {
        self.skipped() + self.answered + self.failed
    }

    /// Refused and failed lines, of this run and of earlier ones.
    pub fn not_answered(&self) -> u64 {
        self.failed + self.refused_before
    }

    /// Generated tokens per second so far.
    pub fn rate(&self) -> f64 {
        self.usage.completion_tokens as f64 / self.started.elapsed().as_secs_f64().max(1e-9)
    }

    fn skipped(&self) -> u64 {
        self.answered_before + self.refused_before
    }

    /// The counts as one line of text.
    pub fn text(&self) -> String {
        let BatchUsage { prompt_tokens, completion_tokens } = self.usage;
        let mut counts = vec![format!("{} answered", self.answered)];
        let more = [
            (self.failed, "failed"),
            (self.skipped(), "finished before"),
            (self.lines.saturating_sub(self.done()), "left"),
        ];
        let more = more.iter().filter(|(count, _)| *count > 0);
        counts.extend(more.map(|(count, what)| format!("{count} {what}")));
        format!(
            "{} lines: {}; the answers have {prompt_tokens} prompt tokens and {completion_tokens} \
             generated tokens{}, in {:.2} s, {:.1} tokens/s",
            self.lines,
            counts.join(", "),
            self.all.map_or_else(String::new, |all| format!(
                " (with requests that were not finished, {} and {})",
                all.prompt_tokens, all.completion_tokens
            )),
            self.started.elapsed().as_secs_f64(),
            self.rate(),
        )
    }

    /// The counts as JSON.
    pub fn to_json(&self) -> Value {
        let all = self.all.unwrap_or(self.usage);
        json!({
            "lines": self.lines,
            "ok": self.answered,
            "failed": self.failed,
            "skipped": self.skipped(),
            "skipped_failed": self.refused_before,
            "left": self.lines.saturating_sub(self.done()),
            "prompt_tokens": self.usage.prompt_tokens,
            "completion_tokens": self.usage.completion_tokens,
            "all_prompt_tokens": all.prompt_tokens,
            "all_completion_tokens": all.completion_tokens,
            "seconds": self.started.elapsed().as_secs_f64(),
            "tokens_per_second": self.rate(),
        })
    }
}
