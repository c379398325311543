//! `bash`: a command of the shell, which continues as a job if it takes long.

use crate::error::ToolError;
use crate::jobs::JobState;
use crate::schema::{member, nullable, object};
use crate::tool::{Tool, ToolOutput, arguments};
use crate::workspace::ToolWorkspace;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// Seconds that a call waits for the command, by default and at most.
const WAIT_S: u64 = 60;
const MAX_WAIT_S: u64 = 3600;

pub(crate) const TOOL: Tool = Tool {
    name: "bash",
    description: "Runs a shell command in the workspace, without a terminal or input. Returns the \
        exit code and the output (standard output and errors together). A command that runs longer \
        than wait_s continues as a job; look at it with the tool job.",
    writes: true,
    schema,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BashArguments {
    command: String,
    wait_s: Option<u64>,
}

fn schema() -> Value {
    object(&[
        ("command", member("string", "command for the shell")),
        ("wait_s", nullable("integer", "seconds to wait for its end; 60 if null, at most 3600")),
    ])
}

fn run(workspace: &mut ToolWorkspace, value: Value) -> Result<ToolOutput, ToolError> {
    let BashArguments { command, wait_s } = arguments(TOOL.name, value)?;
    let time = Duration::from_secs(wait_s.unwrap_or(WAIT_S).min(MAX_WAIT_S));
    let root = workspace.root().to_owned();
    let id = workspace.jobs.start(&command, &root)?;
    let state = workspace.jobs.wait(id, time)?;
    let is_interrupted = state == JobState::Running && workspace.interrupt.is_set();
    if is_interrupted {
        workspace.jobs.stop(id)?;
    }
    let note = if is_interrupted { "[interrupted]\n" } else { "" };
    let limit = workspace.limit() - note.len();
    Ok(ToolOutput::text(format!("{note}{}", workspace.jobs.look(id, limit)?)))
}
