//! The process of the tools for programs that are no `gannet`.

use agent::{HostProcess, HostSettings, Sandbox, ToolFolders};
use std::path::Path;

/// The process of the tools, which this program is where it executes itself.
pub fn tool_process(workspace: &Path, folders: &ToolFolders, sandbox: Sandbox) -> HostProcess {
    let (temporary, git) = (folders.temporary(), folders.git_config());
    std::fs::write(&git, confine::git_identity("test", "test@localhost")).unwrap();
    let environment = confine::environment(std::env::vars_os(), &temporary, &git);
    let settings = HostSettings {
        workspace: workspace.to_owned(),
        temporary,
        kept: Some(folders.kept()),
        write: Vec::new(),
        read: vec![folders.root().to_owned()],
        sandbox,
        net: false,
        command: Vec::new(),
    };
    let program = std::env::current_exe().unwrap();
    HostProcess::start(&program, &settings, environment).unwrap()
}
