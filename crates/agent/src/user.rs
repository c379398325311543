//! Who works with the agent: what is shown, what is asked, and what is written meanwhile.

use crate::model::AnswerStart;
use crate::request::{GuardedReport, ToolAnswer};
use crate::rules::AllowRule;
use api::{TextEvent, ToolCall};
use std::fmt;
use std::time::Instant;

/// What a program shows of an agent's work.
#[derive(Debug)]
pub enum AgentEvent<'a> {
    /// An answer begins.
    Begun(AnswerStart),
    /// An event of the answer.
    Answer(&'a TextEvent),
    /// A call is carried out.
    Call(&'a ToolCall),
    /// What came of it.
    Result(&'a ToolCall, &'a ToolAnswer),
    /// The conversation was replaced by a shorter one.
    Compacted(Compacted),
    /// The conversation is nearly full, and no shorter one came about: the work continues with it.
    NotCompacted,
    /// A call or a change of a guarded file was refused without a question, with why.
    Refused(&'a Question<'a>, &'a str),
}

/// What the user is asked.
#[derive(Debug)]
pub enum Question<'a> {
    /// Whether a call may run, the rule that would allow it from now on, and the difference that
    /// it would make, if one is known.
    Call(&'a ToolCall, Option<AllowRule>, Option<String>),
    /// Whether a guarded file may be changed.
    Guarded(&'a GuardedReport),
}

impl Question<'_> {
    /// What it is about, in short: the rule of a call, its tool, or the guarded file.
    pub(crate) fn subject(&self) -> String {
        match self {
            Question::Call(_, Some(rule), _) => rule.to_string(),
            Question::Call(call, None, _) => call.name.clone(),
            Question::Guarded(report) => format!("{} {}", report.kind, report.path),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Once => f.write_str("once"),
            Self::Session => f.write_str("session"),
            Self::No(None) => f.write_str("no"),
            Self::No(Some(reason)) => write!(f, "no: {reason}"),
        }
    }
}

/// The user's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Yes, once.
    Once,
    /// Yes, for this session.
    Session,
    /// No, with a reason for the model, if there is one.
    No(Option<String>),
}

/// Who works with the agent.
pub trait AgentUser {
    /// Shows an event.
    fn show(&mut self, event: AgentEvent<'_>);
    /// Asks, and waits for the answer, which is no once `end` has come.
    fn ask(&mut self, question: &Question<'_>, end: Option<Instant>) -> Reply;
    /// Whether the work is to stop now.
    fn is_interrupted(&self) -> bool;
    /// What the user has written meanwhile, which the model reads before its next answer.
    fn written(&mut self) -> Vec<String>;
}

/// What came of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Tokens before, as far as they are known.
    pub before: usize,
    /// Tokens after, as they are counted before they are computed.
    pub after: usize,
}
