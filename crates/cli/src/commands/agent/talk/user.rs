//! The user at the terminal.

use super::numbers::TurnNumbers;
use crate::commands::agent::ask;
use crate::commands::agent::call_text::call_text;
use crate::commands::agent::maker::MadeAgent;
use crate::commands::agent::terminal::{AgentTerminal, AnswerChoice, Chosen, TerminalEvent, Typed};
use crate::interrupt;
use agent::{AgentEvent, AgentUser, CONFIRMS, Compacted, Confirm, Question, Reply};
use api::TextEvent;
use std::time::Instant;

/// The user at the terminal.
pub(super) struct TerminalUser {
    terminal: AgentTerminal,
    watch: interrupt::Watch,
    numbers: TurnNumbers,
}

impl TerminalUser {
    /// The user at `terminal`. Signals end the conversation from now on, and not the process.
    pub fn new(terminal: AgentTerminal) -> Self {
        Self { terminal, watch: interrupt::Watch::new(), numbers: TurnNumbers::new() }
    }

    /// Shows a line about the conversation.
    pub fn note(&self, line: impl Into<String>) {
        self.terminal.show(TerminalEvent::Note(line.into()));
    }

    /// Waits for what is typed next.
    pub fn next(&self) -> Typed {
        self.terminal.next()
    }

    /// Whether the terminal has ended by a fault.
    pub fn has_failed(&self) -> bool {
        self.terminal.has_failed()
    }

    /// Begins work, which Ctrl-C and SIGINT interrupt.
    pub fn begin_work(&mut self) {
        // A signal that ends the process stays.
        if interrupt::check_end().is_ok() {
            self.watch = interrupt::Watch::new();
        }
        self.terminal.begin_work();
    }

    /// Ends it.
    pub fn end_work(&mut self) {
        self.numbers.status.prefill = None;
        self.show_numbers();
        self.terminal.show(TerminalEvent::Working(false));
    }

    /// Shows how much context `made` has taken, how its tools are confined, what is asked, and how
    /// many jobs run.
    pub fn show_state(&mut self, made: &MadeAgent, jobs: usize) {
        let (agent, status) = (&made.agent, &mut self.numbers.status);
        (status.used, status.context) = (agent.model.used(), agent.model.context());
        status.sandbox = made.sandbox().to_owned();
        status.mode = match made.is_planning() {
            true => "plan".to_owned(),
            false => format!("asks: {}", confirm_name(agent.policy.confirm)),
        };
        status.jobs = jobs;
        self.show_numbers();
    }

    fn show_numbers(&self) {
        self.terminal.show(TerminalEvent::Status(self.numbers.status.clone()));
    }

    fn show_answer(&mut self, event: &TextEvent) {
        match event {
            TextEvent::Reasoning(delta) => {
                self.terminal.show(TerminalEvent::Reasoning(delta.text.clone()));
            }
            TextEvent::Content(delta) => {
                self.terminal.show(TerminalEvent::Text(delta.text.clone()));
            }
            _ => {}
        }
        if self.numbers.take(event) {
            self.show_numbers();
        }
    }
}

impl AgentUser for TerminalUser {
    fn show(&mut self, event: AgentEvent<'_>) {
        match event {
            AgentEvent::Begun(start) => {
                self.numbers.begin(&start);
                self.show_numbers();
                if let Some(tokens) = start.rendered_anew {
                    self.note(format!("{tokens} tokens are computed anew: the template needs it"));
                }
            }
            AgentEvent::Answer(event) => self.show_answer(event),
            AgentEvent::Call(call) => self
                .terminal
                .show(TerminalEvent::Call { tool: call.name.clone(), detail: call_text(call) }),
            AgentEvent::Result(_, answer) => {
                let (ok, text) = (answer.ok, answer.text.clone());
                self.terminal.show(TerminalEvent::Result { ok, text });
                if let Some(jobs) = answer.jobs {
                    self.numbers.status.jobs = jobs;
                    self.show_numbers();
                }
            }
            AgentEvent::Compacted(Compacted { before, after }) => {
                self.note(format!("compacted: {before} to {after} tokens"));
            }
            AgentEvent::NotCompacted => {
                let text = "the context is nearly full, and was not compacted: /compact or /undo";
                self.note(text);
            }
            AgentEvent::Refused(question, why) => {
                self.note(format!("refused: {why}: {}", ask::title(question)));
            }
        }
    }

    fn ask(&mut self, question: &Question<'_>, end: Option<Instant>) -> Reply {
        let (text, rule) = (ask::what(question), ask::rule(question));
        let choice = |key, name: String| AnswerChoice { key, name };
        let mut choices = vec![choice('y', "yes, once".into()), choice('n', "no".into())];
        choices.extend(rule.map(|rule| choice('s', format!("session: {rule}"))));
        match self.terminal.ask(&text, &choices, end) {
            Chosen::Key('y') => Reply::Once,
            Chosen::Key('s') if rule.is_some() => Reply::Session,
            Chosen::Key(_) | Chosen::Nothing => Reply::No(None),
            Chosen::Text(reason) => Reply::No(Some(reason)),
        }
    }

    fn is_interrupted(&self) -> bool {
        self.terminal.is_interrupted() || self.watch.check().is_err()
    }

    fn written(&mut self) -> Vec<String> {
        self.terminal.written()
    }
}

/// The name of a setting of questions.
pub(super) fn confirm_name(confirm: Confirm) -> &'static str {
    CONFIRMS.iter().find(|(_, known)| *known == confirm).map_or("", |(name, _)| name)
}
