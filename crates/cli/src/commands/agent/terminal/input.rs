//! What other threads send to the one that draws.

use super::shown::TerminalEvent;
use super::typed::AnswerChoice;

/// What comes from other threads.
#[derive(Debug)]
pub(super) enum Input {
    /// Something to show.
    Shown(TerminalEvent),
    /// A question.
    Ask(String, Vec<AnswerChoice>),
    /// A message that is with the agent.
    Taken(String),
    /// There are keys.
    Keys,
}
