//! The user of an agent whose work an editor shows.

use super::call_shown::{self, OpenCalls};
use super::session_handle::WorkState;
use super::shared::AcpShared;
use agent::{AgentEvent, AgentUser, Compacted, Question, Reply, has_come};
use api::{Finish, TextEvent};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// Shows the work on a prompt, and asks.
pub(super) struct EditorUser<'a> {
    pub shared: &'a AcpShared<'a>,
    /// The id of the session.
    pub session: &'a str,
    pub state: &'a WorkState,
    /// The folder of the session, and the one in which tools keep what files were.
    pub folders: (&'a Path, &'a Path),
    pub calls: &'a mut OpenCalls,
    /// How the last answer ended.
    pub finish: Option<Finish>,
}

/// A part of a message, of the kind `kind`.
pub(super) fn chunk(kind: &str, text: &str) -> Value {
    json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}})
}

impl EditorUser<'_> {
    /// Marks calls that were not finished.
    pub fn finish(&mut self) {
        for id in self.calls.close_all() {
            self.update(call_shown::progress(&id, "failed", None));
        }
    }

    fn update(&self, update: Value) {
        self.shared.outbox.update(self.session, update);
    }

    fn show_text(&self, kind: &str, text: &str) {
        if !text.is_empty() {
            self.update(chunk(kind, text));
        }
    }

    fn show_answer(&mut self, event: &TextEvent) {
        match event {
            TextEvent::Content(delta) => self.show_text("agent_message_chunk", &delta.text),
            TextEvent::Reasoning(delta) => self.show_text("agent_thought_chunk", &delta.text),
            TextEvent::Done(done) => self.finish = Some(done.finish.clone()),
            _ => {}
        }
    }

    /// Shows a guarded file whose change is offered, with this status.
    fn show_guarded(&self, mut shown: Value) {
        shown["sessionUpdate"] = "tool_call".into();
        self.update(shown);
    }

    fn ask_client(
        &self,
        call: Value,
        rule: Option<&agent::AllowRule>,
        end: Option<Instant>,
    ) -> Reply {
        let is_over = || self.is_interrupted() || has_come(end);
        let asked = (self.session, call);
        self.shared.questions.ask(&self.shared.outbox, asked, rule, &is_over)
    }
}

impl AgentUser for EditorUser<'_> {
    fn show(&mut self, event: AgentEvent<'_>) {
        let (workspace, _) = self.folders;
        match event {
            AgentEvent::Begun(start) => {
                if let Some(tokens) = start.rendered_anew {
                    let text = format!("{tokens} tokens are computed anew: the template needs it");
                    self.shared.notice(self.session, &text);
                }
            }
            AgentEvent::Answer(event) => self.show_answer(event),
            AgentEvent::Call(call) => {
                let status = "in_progress";
                match self.calls.open(call) {
                    (id, true) => self.update(call_shown::shown(&id, call, workspace, status)),
                    (id, false) => self.update(call_shown::progress(&id, status, None)),
                }
            }
            AgentEvent::Result(call, answer) => {
                let (id, is_new) = self.calls.open(call);
                if is_new {
                    self.update(call_shown::shown(&id, call, workspace, "pending"));
                }
                self.update(call_shown::finished(&id, call, answer, self.folders));
                self.calls.close(call.id.as_deref());
            }
            AgentEvent::Refused(Question::Guarded(report), _) => {
                let id = self.calls.next();
                self.show_guarded(call_shown::guarded(&id, report, workspace, "failed"));
            }
            // Its result says so.
            AgentEvent::Refused(Question::Call(..), _) => {}
            AgentEvent::Compacted(Compacted { before, after }) => {
                let text = format!("the conversation was compacted: {before} to {after} tokens");
                self.shared.notice(self.session, &text);
            }
            AgentEvent::NotCompacted => {
                let text = "the context is nearly full, and the conversation was not compacted";
                self.shared.notice(self.session, text);
            }
        }
    }

    fn ask(&mut self, question: &Question<'_>, end: Option<Instant>) -> Reply {
        let (workspace, _) = self.folders;
        match question {
            Question::Call(call, rule, difference) => {
                let (id, is_new) = self.calls.open(call);
                if is_new {
                    self.update(call_shown::shown(&id, call, workspace, "pending"));
                }
                let asked = call_shown::asked(&id, call, difference.as_deref(), workspace);
                self.ask_client(asked, rule.as_ref(), end)
            }
            Question::Guarded(report) => {
                let id = self.calls.next();
                let shown = call_shown::guarded(&id, report, workspace, "pending");
                self.show_guarded(shown.clone());
                let reply = self.ask_client(shown, None, end);
                let status = if matches!(reply, Reply::No(_)) { "failed" } else { "completed" };
                self.update(call_shown::progress(&id, status, None));
                reply
            }
        }
    }

    fn is_interrupted(&self) -> bool {
        self.state.is_cancelled() || self.shared.end.has_come()
    }

    fn written(&mut self) -> Vec<String> {
        Vec::new()
    }
}
