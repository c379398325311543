//! Tools that the agent's own process carries out.

use crate::host_process::HostProcess;
use crate::host_settings::Sandbox;
use crate::policy::CallReach;
use crate::request::ToolAnswer;
use crate::tool_result::fitted;
use api::{Tool, ToolCall};
use std::fmt::Debug;
use std::path::Path;

/// Some tools beside those of the confined process.
pub trait OtherTools: Debug {
    /// The tools, which stay the same in a session.
    fn tools(&self) -> Vec<Tool>;
    /// What a call may do; `None` if its tool is not one of these.
    fn reach(&self, call: &ToolCall) -> Option<CallReach>;
    /// Lines for the user about where the tools come from, if they come from somewhere.
    fn states(&self) -> Vec<String> {
        Vec::new()
    }
    /// Confines the processes that carry calls out in this way from now on; processes that are
    /// confined in another way end before this returns.
    fn confine(&mut self, _sandbox: Sandbox) {}
    /// Whether processes of the tools run, confined as those of the workspace are and for longer
    /// than a call.
    fn has_processes(&self) -> bool {
        false
    }
    /// Carries out a call, of which `reach` is known; gives whether it succeeded and its result,
    /// of any length. `is_cancelled` is asked meanwhile.
    fn call(&mut self, call: &ToolCall, is_cancelled: &dyn Fn() -> bool) -> (bool, String);
}

/// The answer of a call with a result of at most `most` bytes; the whole is in the folder
/// of the tools then, where the model can read it.
pub(crate) fn answer(host: &HostProcess, (ok, text): (bool, String), most: usize) -> ToolAnswer {
    let text = match text.len() <= most {
        true => text,
        false => kept(host, &text, |file| fitted(&text, most, file)),
    };
    ToolAnswer { id: None, ok, text, changed: Vec::new(), guarded: Vec::new(), jobs: None }
}

/// What stands for a result for which there is no space: where the whole is, unless that is longer
/// than the result.
pub(crate) fn left_out(host: &HostProcess, text: String) -> String {
    let note = kept(host, &text, |file| {
        format!("[there is no space for the result; the whole is in {}]", file.display())
    });
    if note.len() < text.len() { note } else { text }
}

/// `shown` of a file of the tools that has `text`.
fn kept(host: &HostProcess, text: &str, shown: impl Fn(&Path) -> String) -> String {
    match host.keep_result(text) {
        Ok(file) => shown(&file),
        Err(error) => format!("the result cannot be kept: {error}"),
    }
}
