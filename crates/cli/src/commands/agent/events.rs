//! What the command prints of an agent's work: the text, or lines of JSON.

use super::ask::{self, Asker};
use crate::interrupt;
use crate::output;
use crate::sessions::SessionName;
use agent::{AgentEvent, AgentUser, Compacted, Question, Reply, ToolAnswer, WorkEnd, has_come};
use anyhow::Result;
use api::{TextEvent, ToolCall};
use serde_json::{Value, json};
use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::time::Instant;

/// Prints events, and asks.
pub(super) struct EventLines {
    json: bool,
    /// Whether no text is printed but a result.
    is_silent: bool,
    asker: Asker,
    watch: interrupt::Watch,
    is_terminal: bool,
    /// Whether the reader of the output has gone, with which the work ends.
    is_closed: bool,
}

impl EventLines {
    /// Prints JSON, or text, unless there `is_result`, which is printed alone then.
    pub fn new(json: bool, is_result: bool, asker: Asker) -> Self {
        let (watch, is_terminal) = (interrupt::Watch::new(), stdout().is_terminal());
        let is_silent = is_result && !json;
        Self { json, is_silent, asker, watch, is_terminal, is_closed: false }
    }

    /// Whether the user can be asked.
    pub fn can_ask(&self) -> bool {
        self.asker.has_terminal()
    }

    /// Prints what works where.
    pub fn session(&self, name: Option<&SessionName>, model: &str, folder: &Path) -> Result<()> {
        if !self.json {
            return Ok(());
        }
        let name = name.map(ToString::to_string);
        output::lines([json!({
            "event": "session", "name": name, "model": model, "folder": folder.to_string_lossy(),
        })])
    }

    /// Prints how the work ended, with its result if one was asked for.
    pub fn end(&self, end: WorkEnd, result: Option<&Value>) -> Result<()> {
        match self.json {
            true => {
                let mut line = json!({"event": "end", "end": name(end)});
                if let Some(result) = result {
                    line["result"] = result.clone();
                }
                output::lines([line])
            }
            false => {
                match (result, self.is_silent) {
                    (Some(result), _) if self.is_terminal => {
                        let result = serde_json::to_string_pretty(result)?;
                        output::lines([agent::printable(result.as_bytes())])?;
                    }
                    (Some(result), _) => output::json(result)?,
                    (None, true) => {}
                    (None, false) => output::text("\n")?,
                }
                if let Some(why) = stopped(end) {
                    output::note(why);
                }
                Ok(())
            }
        }
    }

    /// Prints a line of JSON, or the text, of which a terminal obeys nothing.
    fn print(&mut self, line: Value, text: &str) {
        let printed = match self.json {
            true if self.is_terminal => {
                output::lines([agent::printable(line.to_string().as_bytes())])
            }
            true => output::lines([line]),
            false if self.is_silent => Ok(()),
            false if self.is_terminal => output::text(&agent::printable(text.as_bytes())),
            false => output::text(text),
        };
        self.is_closed |= printed.is_err();
    }

    fn show_answer(&mut self, event: &TextEvent) {
        match event {
            TextEvent::Content(delta) => {
                self.print(json!({"event": "text", "text": delta.text}), &delta.text);
            }
            TextEvent::Reasoning(delta) => {
                self.print(json!({"event": "reasoning", "text": delta.text}), "");
            }
            TextEvent::Done(done) => {
                let usage = &done.usage;
                let line = json!({
                    "event": "usage", "prompt_tokens": usage.prompt_tokens,
                    "cached_tokens": usage.cached_tokens,
                    "completion_tokens": usage.completion_tokens,
                });
                self.print(line, "");
            }
            _ => {}
        }
    }

    fn show_call(&mut self, call: &ToolCall) {
        let line = json!({
            "event": "call", "id": call.id, "tool": call.name, "arguments": call.arguments,
        });
        self.print(line, &format!("\n[{}] {}\n", call.name, call.arguments));
    }

    fn show_result(&mut self, call: &ToolCall, answer: &ToolAnswer) {
        let changed: Vec<&str> = answer.changed.iter().map(|it| it.path.as_str()).collect();
        let line = json!({
            "event": "result", "id": call.id, "ok": answer.ok, "text": answer.text,
            "changed": changed,
        });
        self.print(line, "");
    }
}

impl AgentUser for EventLines {
    fn show(&mut self, event: AgentEvent<'_>) {
        match event {
            AgentEvent::Answer(event) => self.show_answer(event),
            AgentEvent::Call(call) => self.show_call(call),
            AgentEvent::Result(call, answer) => self.show_result(call, answer),
            AgentEvent::Refused(question, text) => {
                let mut line = ask::event(question);
                line["answer"] = "no".into();
                line["reason"] = text.into();
                let what = ask::title(question);
                self.print(line, &format!("\n[refused: {text}] {what}\n"));
            }
            AgentEvent::Compacted(Compacted { before, after }) => {
                let line = json!({
                    "event": "compaction", "failed": false, "before": before, "after": after,
                });
                self.print(line, &format!("\n[compacted: {before} to {after} tokens]\n"));
            }
            AgentEvent::NotCompacted => {
                let line = json!({"event": "compaction", "failed": true});
                self.print(line, "\n[the context is nearly full, and was not compacted]\n");
            }
            AgentEvent::Begun(start) => {
                if let Some(tokens) = start.rendered_anew {
                    let line = json!({"event": "rendered_anew", "tokens": tokens});
                    self.print(line, &format!("\n[{tokens} tokens are computed anew]\n"));
                }
            }
        }
    }

    fn ask(&mut self, question: &Question<'_>, end: Option<Instant>) -> Reply {
        let (watch, is_closed) = (&self.watch, self.is_closed);
        self.asker.ask(question, &|| is_closed || watch.check().is_err() || has_come(end))
    }

    fn is_interrupted(&self) -> bool {
        self.is_closed || self.watch.check().is_err()
    }

    fn written(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// Why the work has stopped before its end.
fn stopped(end: WorkEnd) -> Option<&'static str> {
    match end {
        WorkEnd::Done | WorkEnd::Interrupted => None,
        WorkEnd::Limit => Some("a limit has ended the work (--max-turns, --max-tokens, --timeout)"),
        WorkEnd::Full => Some("the context is full, and a summary would not free enough of it"),
    }
}

fn name(end: WorkEnd) -> &'static str {
    match end {
        WorkEnd::Done => "done",
        WorkEnd::Interrupted => "interrupted",
        WorkEnd::Limit => "limit",
        WorkEnd::Full => "full",
    }
}
