//! What the client needs of the program around it.

use super::settings::McpCommand;
use std::fmt::{self, Debug, Formatter};
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// How a server is started: from its name and its settings comes the process.
///
/// # Errors
///
/// If it cannot be confined as the settings say.
pub type McpLauncher = Arc<dyn Fn(&str, &McpCommand) -> io::Result<McpProcess> + Send + Sync>;

/// A server as a process to be started: with arguments, folder and the whole environment, that of
/// the settings included. Its standard streams are set by the client.
#[derive(Debug)]
pub struct McpProcess {
    /// The program.
    pub command: Command,
    /// Whether the program ends by itself, with all that it has started, some seconds after its
    /// input. Otherwise the client makes it the leader of a group, and ends the group.
    pub is_watched: bool,
}

/// What the client needs of the agent.
#[derive(Clone)]
pub struct McpContext {
    /// How servers are started.
    pub launcher: McpLauncher,
    /// Makes bytes of servers into text that does nothing to a terminal.
    pub printable: fn(&[u8]) -> String,
    /// Times that servers have.
    pub limits: McpLimits,
}

impl Debug for McpContext {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpContext").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl McpContext {
    /// Text of a server as it may be shown.
    pub(super) fn shown(&self, text: &str) -> String {
        (self.printable)(text.as_bytes())
    }
}

/// Times that servers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McpLimits {
    /// For a call.
    pub call: Duration,
    /// From the start until the tools are listed.
    pub start: Duration,
    /// For the answer to `server/discover`, after which a server is taken for an older one.
    pub probe: Duration,
    /// To end after their input has, and again after the signal `SIGTERM`.
    pub end: Duration,
}

impl Default for McpLimits {
    fn default() -> Self {
        Self {
            call: Duration::from_secs(60),
            start: Duration::from_secs(60),
            probe: Duration::from_secs(10),
            end: Duration::from_secs(2),
        }
    }
}
