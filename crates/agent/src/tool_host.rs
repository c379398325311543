//! The process of the tools: it confines itself, and then carries out requests or becomes another
//! program.

use crate::command_shell::CommandShell;
use crate::host::Host;
use crate::host_settings::{
    CommandSettings, HostSettings, HostStart, Sandbox, TOOL_HOST, WatchedSettings,
};
use crate::watcher::watch;
use crate::workspace::ToolWorkspace;
#[cfg(target_os = "linux")]
use rustix::process::Signal;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The exit code after an error.
const FAILED: u8 = 1;

/// Carries out requests of the standard input until it ends, or executes another program, with
/// `settings` as JSON and the program that they are about, if they do not name it; gives the exit
/// code of this process. Called by a process that has one thread and has done nothing else.
pub fn serve_tools(settings: &str, program: &[OsString]) -> u8 {
    let done = if let Ok(WatchedSettings { watch: settings }) = serde_json::from_str(settings) {
        watch(&settings)
    } else if let Ok(CommandSettings { command_writes }) = serde_json::from_str(settings) {
        Err(become_command(&command_writes, program))
    } else {
        return serve(settings).map_or(FAILED, |()| 0);
    };
    done.unwrap_or_else(|error| {
        // The caller shows the last lines.
        let _ = writeln!(io::stderr(), "{TOOL_HOST}: {error}");
        FAILED
    })
}

/// Becomes a command, from which the process of the tools is protected. Gives the error if it
/// cannot.
fn become_command(writes: &[PathBuf], program: &[OsString]) -> io::Error {
    let [program, arguments @ ..] = program else {
        return io::Error::other("expected a command");
    };
    match confine::protect_ancestors(writes) {
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => io::Error::other(error),
    }
}

/// Carries out requests.
///
/// # Errors
/// If the output cannot be written; other errors are its first line.
fn serve(settings: &str) -> io::Result<()> {
    let settings = serde_json::from_str::<HostSettings>(settings);
    let settings = settings.map_err(|error| format!("{TOOL_HOST}: {error}"));
    if let Ok(settings) = &settings
        && let [program, arguments @ ..] = &*settings.command
    {
        let error = match confine(settings) {
            Ok(()) => execute(program, arguments),
            Err(problem) => io::Error::other(problem),
        };
        // The caller shows the last lines.
        writeln!(io::stderr(), "{program}: {error}")?;
        return Err(error);
    }
    let folders = settings.as_ref().map_or_else(|_| Vec::new(), HostSettings::temporary_folders);
    let begun = settings.and_then(|settings| confine(&settings).and_then(|()| begin(&settings)));
    let mut output = io::stdout().lock();
    let start =
        begun.as_ref().map_or_else(|it| HostStart::Failed(it.clone()), |_| HostStart::Ready);
    writeln!(output, "{}", serde_json::to_string(&start)?)?;
    output.flush()?;
    let Ok(mut host) = begun else { return Ok(()) };
    let served = host.serve(BufReader::new(io::stdin()), output);
    if !host.leaves_files() {
        folders.iter().for_each(|folder| clear(folder));
    }
    served
}

/// Removes what is in a temporary folder, which an agent that was killed does not do.
fn clear(folder: &Path) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        // What cannot be removed is left to the system.
        let _ = match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => fs::remove_dir_all(entry.path()),
            false => fs::remove_file(entry.path()),
        };
    }
}

/// Confines this process as the settings say.
fn confine(settings: &HostSettings) -> Result<(), String> {
    // No terminal is asked from here on, and none ends it.
    rustix::process::setsid().map_err(|error| format!("setsid: {error}"))?;
    if let Some(confinement) = settings.confinement() {
        confinement.apply().map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The shell that commands are started by: a protected one where there is something to protect.
fn shell(settings: &HostSettings) -> io::Result<CommandShell> {
    let shell = CommandShell::new(&settings.temporary);
    match settings.confinement() {
        Some(confinement) => shell.protected(confinement.commands_write()),
        None => Ok(shell),
    }
}

/// Becomes another program, which ends when the process that watches over it is killed.
/// Gives the error if it cannot.
fn execute(program: &str, arguments: &[String]) -> io::Error {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    Command::new(program).args(arguments).exec()
}

fn begin(settings: &HostSettings) -> Result<Host, String> {
    // Where it is not confined, others trace it anyway.
    if settings.sandbox != Sandbox::Off {
        confine::hide_process().map_err(|error| error.to_string())?;
    }
    let shell = shell(settings).map_err(|error| error.to_string())?;
    let workspace = ToolWorkspace::open(&settings.workspace, settings.kept(), shell);
    let workspace = workspace.map_err(|error| error.to_string())?;
    // Elsewhere, groups of processes are what ends.
    let host = match cfg!(target_os = "linux") {
        true => Host::with_orphans(workspace).map_err(|error| error.to_string())?,
        false => Host::new(workspace),
    };
    Ok(host.guarding(&settings.write))
}
