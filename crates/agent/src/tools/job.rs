//! `job`: looks at a command that runs, waits for its end or ends it.

use crate::error::ToolError;
use crate::schema::{member, object};
use crate::tool::{Tool, ToolOutput, arguments};
use crate::workspace::ToolWorkspace;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Seconds that `wait` waits at most.
const MAX_WAIT_S: u64 = 60;

pub(crate) const TOOL: Tool = Tool {
    name: "job",
    description: "Looks at a command that still runs (status), waits up to 60 s for its end (wait) \
        or ends it with its processes (stop). Returns the exit code, if it ended, and the output \
        since the last look.",
    writes: true,
    schema,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobArguments {
    id: usize,
    action: Action,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Status,
    Wait,
    Stop,
}

fn schema() -> Value {
    let action = json!({
        "type": "string",
        "enum": ["status", "wait", "stop"],
        "description": "what to do",
    });
    object(&[("id", member("integer", "number of the job")), ("action", action)])
}

fn run(workspace: &mut ToolWorkspace, value: Value) -> Result<ToolOutput, ToolError> {
    let JobArguments { id, action } = arguments(TOOL.name, value)?;
    match action {
        Action::Status => {}
        Action::Wait => {
            workspace.jobs.wait(id, Duration::from_secs(MAX_WAIT_S))?;
        }
        Action::Stop => {
            workspace.jobs.stop(id)?;
        }
    }
    let limit = workspace.limit();
    Ok(ToolOutput::text(workspace.jobs.look(id, limit)?))
}
