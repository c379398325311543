//! How commands of the shell are started.

use crate::host_settings::{CommandSettings, TOOL_HOST};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What starts commands of the shell.
#[derive(Debug)]
pub struct CommandShell {
    /// What commands find in `TMPDIR`.
    temporary: PathBuf,
    /// The program with its arguments that becomes the shell; none for the shell itself.
    before: Vec<OsString>,
}

impl CommandShell {
    /// The shell itself, with `temporary` as the folder for temporary files.
    pub fn new(temporary: &Path) -> Self {
        Self { temporary: temporary.to_owned(), before: Vec::new() }
    }

    /// The same shell, started by this program executed again, which protects the calling process
    /// from it and lets it write in these folders alone.
    ///
    /// # Errors
    ///
    /// If the path of this program is not known.
    pub fn protected(self, writes: Vec<PathBuf>) -> io::Result<Self> {
        let settings = serde_json::to_string(&CommandSettings { command_writes: writes })?;
        let program = std::env::current_exe()?.into_os_string();
        Ok(Self { before: vec![program, TOOL_HOST.into(), settings.into()], ..self })
    }

    /// A command of the shell.
    pub(crate) fn command(&self, text: &str) -> Command {
        let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
        let mut command = match &*self.before {
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments).arg(shell);
                command
            }
            [] => Command::new(shell),
        };
        command.args(["-c", text]).env("TMPDIR", &self.temporary);
        command
    }
}
