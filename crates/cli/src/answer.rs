//! A streamed answer: shown, collected and counted.

use crate::output;
use anyhow::Result;
use api::{Done, TextEvent, TextStream};
use serde_json::{Value, json};
use std::fmt::Write;

/// An answer that has been received.
#[derive(Clone, Debug)]
pub(crate) struct StreamedAnswer {
    /// The text of the answer.
    pub text: String,
    /// The reasoning before it.
    pub reasoning: String,
    /// Usage and finish reason; `None` for an answer that was stopped.
    pub done: Option<Done>,
}

/// What is printed while an answer streams in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// Text on standard output, reasoning dimmed on standard error where it is a terminal.
    Pieces,
    /// Nothing.
    Nothing,
}

impl StreamedAnswer {
    /// Receives `stream` to its end, or until `stop` completes.
    pub async fn follow(mut stream: TextStream, show: Show, stop: impl Future) -> Result<Self> {
        let mut answer = Self { text: String::new(), reasoning: String::new(), done: None };
        let mut stop = std::pin::pin!(stop);
        loop {
            let event = tokio::select! {
                event = stream.next() => event,
                _ = &mut stop => None,
            };
            match event {
                Some(event) => answer.take(event, show)?,
                None => break,
            }
        }
        if show == Show::Pieces && !answer.text.ends_with('\n') {
            output::text("\n")?;
        }
        Ok(answer)
    }

    fn take(&mut self, event: TextEvent, show: Show) -> Result<()> {
        match event {
            // The command line offers no tools, so none is called.
            TextEvent::Admitted { .. }
            | TextEvent::Prefill { .. }
            | TextEvent::Prompt { .. }
            | TextEvent::Call(_) => {}
            TextEvent::Reasoning(delta) => {
                self.reasoning.push_str(&delta.text);
                if show == Show::Pieces {
                    output::aside(&delta.text);
                }
            }
            TextEvent::Content(delta) => {
                if show == Show::Pieces {
                    if self.text.is_empty() && !self.reasoning.is_empty() {
                        output::aside("\n\n");
                    }
                    output::text(&delta.text)?;
                }
                self.text.push_str(&delta.text);
            }
            TextEvent::Done(done) => self.done = Some(done),
            TextEvent::Failed(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The answer as JSON.
    pub fn to_json(&self, model: &str) -> Value {
        let mut value = json!({"model": model, "text": self.text, "reasoning": self.reasoning});
        let Some(Done { finish, usage, timings }) = &self.done else { return value };
        value["finish_reason"] = finish.reason().into();
        value["usage"] = json!({
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "cached_tokens": usage.cached_tokens,
        });
        let (prefill, decode) = rates(&self.done);
        value["timings"] = json!({
            "queued_s": timings.queued_s,
            "prefill_s": timings.prefill_s,
            "decode_s": timings.decode_s,
            "prefill_tokens_per_second": prefill,
            "decode_tokens_per_second": decode,
        });
        value
    }

    /// Token counts and rates as one line of text.
    pub fn stats(&self) -> String {
        let Some(Done { usage, timings, finish }) = &self.done else { return "stopped".into() };
        let rate = |rate: Option<f64>| rate.map_or(String::new(), |r| format!(", {r:.1} tokens/s"));
        let (prefill, decode) = rates(&self.done);
        let mut line = format!("prompt: {} tokens", usage.prompt_tokens);
        if usage.cached_tokens > 0 {
            let _ = write!(line, " ({} cached)", usage.cached_tokens);
        }
        let _ = write!(line, " in {:.2} s{}", timings.prefill_s, rate(prefill));
        let _ = write!(line, "; answer: {} tokens", usage.completion_tokens);
        if usage.reasoning_tokens > 0 {
            let _ = write!(line, " ({} reasoning)", usage.reasoning_tokens);
        }
        let _ = write!(line, " in {:.2} s{}", timings.decode_s, rate(decode));
        line + "; finish reason: " + finish.reason()
    }
}

/// Prefill and decode rates in tokens per second; `None` where a phase took no time.
fn rates(done: &Option<Done>) -> (Option<f64>, Option<f64>) {
    let Some(Done { usage, timings, .. }) = done else { return (None, None) };
    let rate = |tokens: usize, seconds: f64| {
        (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
    };
    let computed = usage.prompt_tokens.saturating_sub(usage.cached_tokens);
    // The first token of the answer comes from the prompt's own logits.
    let decoded = usage.completion_tokens.saturating_sub(1);
    (rate(computed, timings.prefill_s), rate(decoded, timings.decode_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{Finish, Timings, Usage};

    #[test]
    fn rates_count_what_was_computed_in_each_phase() {
        let usage =
            Usage { prompt_tokens: 12, completion_tokens: 5, cached_tokens: 2, ..Usage::default() };
        let timings = Timings { queued_s: 0.0, prefill_s: 2.0, decode_s: 0.5 };
        let done = Some(Done { finish: Finish::Length, usage, timings });
        assert_eq!(rates(&done), (Some(5.0), Some(8.0)));
        let answer = StreamedAnswer { text: "x".into(), reasoning: String::new(), done };
        assert_eq!(answer.to_json("m")["finish_reason"], "length");
        assert!(answer.stats().contains("12 tokens (2 cached)"), "{}", answer.stats());
    }

    #[test]
    fn an_answer_without_an_end_has_no_rates() {
        assert_eq!(rates(&None), (None, None));
    }
}
