//! The tools of MCP servers as tools of the agent, and how their processes are confined.

use crate::host_settings::{HostSettings, Sandbox, TOOL_HOST, WatchedSettings};
use crate::mcp::{
    McpContext, McpLauncher, McpLimits, McpProcess, McpServerSettings, McpServers, McpSettings,
};
use crate::other_tools::OtherTools;
use crate::policy::CallReach;
use crate::printable::printable;
use crate::rules::RuleSubject;
use api::{Tool, ToolCall};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

/// Servers that run, with their tools.
#[derive(Debug)]
pub struct McpTools {
    servers: McpServers,
    /// The sandbox of processes that are started from now on.
    sandbox: Arc<Mutex<Sandbox>>,
    has_processes: bool,
}

impl McpTools {
    /// Starts the servers of `settings`. Commands are executed by `program`, which confines itself
    /// first as `host` says, with this environment; a server has its own network and confinement.
    /// What a server has started ends with it, and both end with this process. `is_cancelled` is
    /// asked meanwhile.
    pub fn start(
        settings: &McpSettings,
        (program, host): (&Path, &HostSettings),
        environment: Vec<(OsString, OsString)>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Self {
        let sandbox = Arc::new(Mutex::new(host.sandbox));
        let launcher = launcher(program, host, environment, Arc::clone(&sandbox));
        let context = McpContext { launcher, printable, limits: McpLimits::default() };
        let has_processes = settings.servers.values().any(|server| match server {
            McpServerSettings::Command(command) => command.is_confined,
            McpServerSettings::Url(..) => false,
        });
        let servers = McpServers::start(settings, &context, is_cancelled);
        Self { servers, sandbox, has_processes }
    }

    /// Sentences about servers that do not work, and tools that are left out.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        self.servers.problems().iter().map(|it| format!("{}: {}", it.server, it.text))
    }
}

fn launcher(
    program: &Path,
    host: &HostSettings,
    environment: Vec<(OsString, OsString)>,
    sandbox: Arc<Mutex<Sandbox>>,
) -> McpLauncher {
    let (program, host) = (program.to_owned(), host.clone());
    Arc::new(move |_, server| {
        let current = *sandbox.lock().unwrap_or_else(PoisonError::into_inner);
        let sandbox = if server.is_confined { current } else { Sandbox::Off };
        let watch = HostSettings {
            sandbox,
            kept: None,
            net: server.net,
            command: server.command.clone(),
            ..host.clone()
        };
        let mut command = Command::new(&program);
        command
            .arg(TOOL_HOST)
            .arg(serde_json::to_string(&WatchedSettings { watch })?)
            .current_dir(&host.workspace)
            .env_clear()
            .envs(environment.iter().cloned())
            .envs(&server.env);
        Ok(McpProcess { command, is_watched: true })
    })
}

impl OtherTools for McpTools {
    fn tools(&self) -> Vec<Tool> {
        let tools = self.servers.tools().iter();
        let tool = |tool: &crate::mcp::McpTool| Tool {
            name: tool.name.clone(),
            description: Some(tool.description.clone()),
            parameters: tool.schema.clone(),
            // Who answers may know that a grammar enforces the schema.
            strict: false,
            source: None,
        };
        tools.map(tool).collect()
    }

    fn reach(&self, call: &ToolCall) -> Option<CallReach> {
        let tool = self.servers.tools().iter().find(|tool| tool.name == call.name)?;
        let (server, name) = (tool.server.clone(), tool.tool.clone());
        let subject = RuleSubject::Mcp { server, tool: name };
        let is_read_only = tool.is_read_only;
        Some(CallReach { is_inside: is_read_only, writes: !is_read_only, subject })
    }

    fn confine(&mut self, sandbox: Sandbox) {
        let mut current = self.sandbox.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *current, sandbox) != sandbox {
            drop(current);
            self.servers.rest();
        }
    }

    fn states(&self) -> Vec<String> {
        self.servers.states()
    }

    fn has_processes(&self) -> bool {
        self.has_processes
    }

    fn call(&mut self, call: &ToolCall, is_cancelled: &dyn Fn() -> bool) -> (bool, String) {
        match self.servers.call(&call.name, &call.arguments, is_cancelled) {
            Ok(answer) => (answer.ok, answer.text),
            Err(error) => (false, error.to_string()),
        }
    }
}
