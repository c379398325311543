//! The MCP servers of the user's settings, whose tools the agent has.

use crate::output::note;
use crate::settings::McpSetting;
use agent::{HostSettings, McpSettings, McpTools, OtherTools};
use anyhow::{Result, anyhow};
use std::cell::Cell;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time after which a note says what starts.
const NOTED: Duration = Duration::from_secs(1);

/// Starts the servers of `setting`, and says which of them do not work. Commands are executed by
/// `program`, in the folders and the sandbox of `host` and with this environment. `is_cancelled` is
/// asked meanwhile; servers that have not started then are given up.
///
/// # Errors
///
/// If the setting is none of servers.
pub(super) fn start(
    setting: Option<&McpSetting>,
    (program, host): (&Path, &HostSettings),
    environment: Vec<(OsString, OsString)>,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Option<Box<dyn OtherTools>>> {
    let Some(McpSetting { path, value }) = setting else { return Ok(None) };
    let settings = McpSettings::read(value);
    let settings = settings.map_err(|problem| anyhow!("{}: {problem}", path.display()))?;
    if settings.servers.is_empty() {
        return Ok(None);
    }
    let (begun, is_said) = (Instant::now(), Cell::new(false));
    let look = || {
        if begun.elapsed() >= NOTED && !is_said.replace(true) {
            note("starting MCP servers");
        }
        is_cancelled()
    };
    let tools = McpTools::start(&settings, (program, host), environment, &look);
    tools.problems().for_each(|problem| note(format_args!("MCP server {problem}")));
    Ok(Some(Box::new(tools)))
}

/// Lines about the servers among `others`: their states and their tools.
pub(super) fn lines(others: &[Box<dyn OtherTools>]) -> Vec<String> {
    let lines: Vec<String> = others.iter().flat_map(|others| others.states()).collect();
    match lines.is_empty() {
        true => vec!["no MCP servers: the key `mcp` of gannet.yaml names them".to_owned()],
        false => lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::{FetchTool, Sandbox};
    use serde_json::{Value, json};

    fn started(value: Value) -> Result<Option<Box<dyn OtherTools>>> {
        let setting = McpSetting { path: "/a/gannet.yaml".into(), value };
        let host = HostSettings {
            workspace: "/".into(),
            temporary: "/".into(),
            kept: None,
            write: Vec::new(),
            read: Vec::new(),
            sandbox: Sandbox::Workspace,
            net: false,
            command: Vec::new(),
        };
        start(Some(&setting), (Path::new("/none"), &host), Vec::new(), &|| false)
    }

    #[test]
    fn a_wrong_server_is_named_with_file_and_field() {
        let error = started(json!({"files": {"command": "x"}})).unwrap_err().to_string();
        let expected = "/a/gannet.yaml: mcp.files.command: expected a list of a program and its \
                        arguments, found `x`";
        assert_eq!(error, expected);
        assert!(started(json!({})).unwrap().is_none());
    }

    #[test]
    fn servers_that_do_not_start_are_listed_with_the_reason() {
        let servers = started(json!({"files": {"command": ["x"]}})).unwrap().unwrap();
        assert!(servers.tools().is_empty());
        let lines = lines(&[Box::new(FetchTool::default()), servers]);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("files: not started: `x` cannot be started: "), "{lines:?}");
        let none = super::lines(&[Box::new(FetchTool::default())]);
        assert_eq!(none, ["no MCP servers: the key `mcp` of gannet.yaml names them"]);
    }
}
