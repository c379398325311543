//! A streamed answer: shown, collected and counted.

use crate::{output, progress};
use anyhow::Result;
use api::{Done, Finish, Receipt, TextEvent, TextStream, TokenText};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::fmt::Write;

/// An answer that has been received.
#[derive(Clone, Debug)]
pub(crate) struct StreamedAnswer {
    /// The text of the answer.
    pub text: String,
    /// The reasoning before it.
    pub reasoning: String,
    /// The tokens, where log probabilities were asked for.
    pub tokens: Vec<TokenText>,
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
        let (text, reasoning) = (String::new(), String::new());
        let mut answer = Self { text, reasoning, tokens: Vec::new(), done: None };
        let mut stop = std::pin::pin!(stop);
        let mut prefill = PrefillBar::default();
        loop {
            let event = tokio::select! {
                event = stream.next() => event,
                _ = &mut stop => None,
            };
            match event {
                Some(event) => {
                    prefill.take(&event);
                    answer.take(event, show)?;
                }
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
                self.tokens.extend(delta.tokens);
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
                self.tokens.extend(delta.tokens);
            }
            TextEvent::Done(done) => self.done = Some(done),
            TextEvent::Failed(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The receipt, where one was asked for and the answer is whole.
    pub fn receipt(&self) -> Option<&Receipt> {
        self.done.as_ref()?.receipt.as_deref()
    }

    /// The answer as JSON.
    pub fn to_json(&self, model: &str) -> Value {
        let mut value = json!({"model": model, "text": self.text, "reasoning": self.reasoning});
        let Some(Done { finish, usage, timings, .. }) = &self.done else { return value };
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

    /// A line for each token, as JSON: its log probability and those of the most likely ones.
    pub fn token_lines(&self) -> String {
        let line = |token: &TokenText| {
            let top = token.top.iter().map(|top| {
                json!({"id": top.id, "token": top.text, "bytes": top.bytes, "logprob": top.logprob})
            });
            let value = json!({
                "id": token.id,
                "token": token.text,
                "bytes": token.bytes,
                "logprob": token.logprob,
                "top_logprobs": top.collect::<Vec<_>>(),
            });
            format!("{value}\n")
        };
        self.tokens.iter().map(line).collect()
    }

    /// What to say of an answer without text: that reasoning took all tokens.
    pub fn hint(&self) -> Option<String> {
        let Some(Done { finish: Finish::Length, usage, .. }) = &self.done else { return None };
        let is_silent = self.text.is_empty() && usage.reasoning_tokens > 0;
        is_silent.then(|| {
            format!(
                "all {} tokens were reasoning: -n allows more, --no-think turns it off",
                usage.completion_tokens
            )
        })
    }

    /// Token counts and rates as one line of text.
    pub fn stats(&self) -> String {
        let Some(Done { usage, timings, finish, .. }) = &self.done else { return "stopped".into() };
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
        if usage.drafted_tokens > 0 {
            let (accepted, drafted) = (usage.accepted_tokens, usage.drafted_tokens);
            let _ = write!(line, "; {accepted} of {drafted} drafted tokens accepted");
        }
        line + "; finish reason: " + finish.reason()
    }
}

/// The progress of a prompt as a bar on standard error, until the answer begins.
#[derive(Debug, Default)]
struct PrefillBar(Option<ProgressBar>);

impl PrefillBar {
    fn take(&mut self, event: &TextEvent) {
        match event {
            &TextEvent::Prefill { done, total, .. } if done < total => {
                let bar = self.0.get_or_insert_with(|| {
                    let bar = progress::tokens(total as u64);
                    bar.set_message("prompt");
                    bar.set_position(done as u64);
                    bar.reset_eta();
                    bar
                });
                bar.set_position(done as u64);
            }
            TextEvent::Admitted { .. } => {}
            _ => drop(self.0.take().inspect(ProgressBar::finish_and_clear)),
        }
    }
}

impl Drop for PrefillBar {
    fn drop(&mut self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
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
    use api::CacheReport;
    use api::{TopToken, Usage};
    use engine::Timings;

    fn answer(text: &str, done: Option<Done>) -> StreamedAnswer {
        StreamedAnswer { text: text.into(), reasoning: String::new(), tokens: Vec::new(), done }
    }

    #[test]
    fn an_answer_of_reasoning_alone_is_explained() {
        let explained = |text: &str, finish, reasoning_tokens| {
            let usage = Usage { completion_tokens: 3, reasoning_tokens, ..Usage::default() };
            let timings = Timings { queued_s: 0.0, prefill_s: 0.0, decode_s: 0.0 };
            answer(text, Some(Done { finish, usage, timings, receipt: None })).hint().is_some()
        };
        assert!(explained("", Finish::Length, 3));
        assert!(!explained("x", Finish::Length, 2));
        assert!(!explained("", Finish::Length, 0));
        assert!(!explained("", Finish::Complete, 3));
    }

    #[test]
    fn each_token_is_a_line_with_its_alternatives() {
        let top = TopToken { id: 7, text: "a".into(), bytes: vec![97], logprob: -0.5 };
        let mut answer = answer("\n", None);
        answer.tokens = vec![TokenText {
            id: 9,
            text: "\n".into(),
            bytes: vec![10],
            logprob: -1.0,
            top: vec![top],
        }];
        assert_eq!(
            answer.token_lines(),
            "{\"id\":9,\"token\":\"\\n\",\"bytes\":[10],\"logprob\":-1.0,\"top_logprobs\":\
             [{\"id\":7,\"token\":\"a\",\"bytes\":[97],\"logprob\":-0.5}]}\n"
        );
    }

    #[test]
    fn the_bar_of_a_prompt_ends_before_the_answer() {
        let mut bar = PrefillBar::default();
        bar.take(&TextEvent::Admitted(CacheReport { found: 3, ..CacheReport::default() }));
        bar.take(&TextEvent::Prefill { cached: 3, done: 3, total: 9 });
        assert_eq!(bar.0.as_ref().map(ProgressBar::position), Some(3));
        bar.take(&TextEvent::Prefill { cached: 3, done: 6, total: 9 });
        assert_eq!(bar.0.as_ref().map(ProgressBar::position), Some(6));
        bar.take(&TextEvent::Prefill { cached: 3, done: 9, total: 9 });
        assert!(bar.0.is_none());
    }

    #[test]
    fn rates_count_what_was_computed_in_each_phase() {
        let usage =
            Usage { prompt_tokens: 12, completion_tokens: 5, cached_tokens: 2, ..Usage::default() };
        let timings = Timings { queued_s: 0.0, prefill_s: 2.0, decode_s: 0.5 };
        let done = Some(Done { finish: Finish::Length, usage, timings, receipt: None });
        assert_eq!(rates(&done), (Some(5.0), Some(8.0)));
        let answer = answer("x", done);
        assert_eq!(answer.to_json("m")["finish_reason"], "length");
        assert!(answer.stats().contains("12 tokens (2 cached)"), "{}", answer.stats());
    }

    #[test]
    fn an_answer_without_an_end_has_no_rates() {
        assert_eq!(rates(&None), (None, None));
    }
}
