//! Taking back the last request: files and transcript.

use crate::agent_loop::{Agent, AgentError};
use crate::tool_result::MAX_RESULT_BYTES;
use crate::tools::restore::RESTORE;
use api::TranscriptMark;

/// What came of taking a request back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// What was done with files: `restored a.txt`.
    pub files: Vec<String>,
    /// Files that stay, with why.
    pub kept: Vec<String>,
    /// Commands whose changes are not undone.
    pub commands: Vec<String>,
}

impl Agent {
    /// Takes back the last request with its answers, and what the tools `write` and `edit` changed;
    /// `None` if there is no request.
    ///
    /// # Errors
    /// If the tools or the session fail.
    pub fn undo(&mut self) -> Result<Option<Undone>, AgentError> {
        let Some(request) = self.session.requests().last().cloned() else { return Ok(None) };
        let mut undone = Undone { commands: request.commands, ..Undone::default() };
        for change in request.changes.iter().rev() {
            // The tools say what is missing.
            let _ = self.session.give_back(change, &self.host.kept_files());
            let arguments = serde_json::to_value(change).unwrap_or_default();
            let answer = self.host.call((RESTORE, &arguments), MAX_RESULT_BYTES, || false)?;
            let list = if answer.ok { &mut undone.files } else { &mut undone.kept };
            list.push(answer.text);
        }
        self.session.rewind()?;
        self.model.rewind(TranscriptMark(request.message));
        Ok(Some(undone))
    }
}
