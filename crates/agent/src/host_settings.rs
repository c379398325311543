//! What the process of the tools is started with.

use confine::{Confinement, Network};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The name of the program's command that has the tools.
pub const TOOL_HOST: &str = "tool-host";

/// How the tools are confined (`--sandbox`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// They write in the workspace.
    #[default]
    Workspace,
    /// They write in a temporary folder alone.
    ReadOnly,
    /// They are not confined.
    Off,
}

/// The folders of the tools, and what is allowed there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSettings {
    /// The folder that is worked in.
    pub workspace: PathBuf,
    /// A private folder for temporary files, which exists.
    pub temporary: PathBuf,
    /// A folder that the tools write and commands read, which exists. Files of another process of
    /// the tools stay there. The temporary one if there is none.
    pub kept: Option<PathBuf>,
    /// More folders that are written.
    pub write: Vec<PathBuf>,
    /// More folders that are read.
    pub read: Vec<PathBuf>,
    /// How the tools are confined.
    pub sandbox: Sandbox,
    /// Whether they reach the internet.
    pub net: bool,
    /// A program with its arguments that is executed instead of the tools, under the same
    /// confinement; none for the tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
}

impl HostSettings {
    /// The folder in which the tools keep results.
    pub(crate) fn kept(&self) -> &Path {
        self.kept.as_ref().unwrap_or(&self.temporary)
    }

    /// The folders of what is temporary.
    pub(crate) fn temporary_folders(&self) -> Vec<PathBuf> {
        self.kept.iter().chain([&self.temporary]).cloned().collect()
    }

    /// What the process may do; `None` where it is not confined.
    pub fn confinement(&self) -> Option<Confinement> {
        // This program starts each command.
        let program = std::env::current_exe().ok();
        let confined = Confinement {
            kept: self.kept.clone(),
            write: self.write.clone(),
            read: self.read.iter().cloned().chain(program).collect(),
            read_only: self.sandbox == Sandbox::ReadOnly,
            network: if self.net { Network::Internet } else { Network::None },
            ..Confinement::new(&self.workspace, &self.temporary)
        };
        (self.sandbox != Sandbox::Off).then_some(confined)
    }
}

/// What the process is started with that watches over the program of some settings.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WatchedSettings {
    /// The settings.
    pub watch: HostSettings,
}

/// What the process is started with that becomes a command.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandSettings {
    /// The folders that it writes.
    pub command_writes: Vec<PathBuf>,
}

/// The first line of the process of the tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HostStart {
    /// It waits for requests.
    Ready,
    /// It has ended, with this error.
    Failed(String),
}
