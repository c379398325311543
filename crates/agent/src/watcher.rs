//! The process between the agent and another that it starts, the tools or an MCP server: when the
//! agent ends, the other ends with all that it has started.
//!
//! Invariant: nothing that the program has started is left when this process has ended. This
//! process is not confined, so that the program, which is, cannot signal it; all that it does is to
//! start the program, to hand its input over, to wait and to kill. The agent alone holds the other
//! end of the input of this process, which is how it knows that the agent is there: the program has
//! an input of its own.

use crate::host_settings::{HostSettings, TOOL_HOST};
use crate::orphans;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, setsid, waitid,
};
use std::fs::File;
use std::io;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Time that a program has to end after its input has, and again after the signal `SIGTERM`; and
/// the tools, which end their commands first.
const END: Duration = Duration::from_secs(2);
const END_OF_TOOLS: Duration = Duration::from_secs(10);
/// Seconds between two looks for orphans that have ended.
const ORPHANS_SECS: i64 = 10;
/// What the number of a signal is added to, for the exit code of a program that it has ended.
const SIGNALLED: i32 = 128;

/// The program; `None` once it has ended.
type Watched = Arc<Mutex<Option<Pid>>>;

/// Starts the program of `settings` with the output of this process and a copy of its input, and
/// gives its exit code when it has ended. When the input of this process is closed, the program has
/// some seconds to end.
///
/// # Errors
///
/// If this program cannot be executed again, or no thread can be started.
pub(crate) fn watch(settings: &HostSettings) -> io::Result<u8> {
    setsid()?;
    // Where the system has no orphans to adopt, the program's group is what ends.
    let _ = orphans::adopt();
    let (program, input) = start(settings)?;
    let watched: Watched = Arc::new(Mutex::new(Some(program)));
    let of_thread = Arc::clone(&watched);
    let time = if settings.command.is_empty() { END_OF_TOOLS } else { END };
    let thread = |name: &str| thread::Builder::new().name(name.to_owned());
    let code = thread("end")
        .spawn(move || {
            wait_for_closed_input(program);
            end(&of_thread, time);
        })
        .and_then(|_| thread("input").spawn(move || hand_over(input)))
        .and_then(|_| silence())
        .and_then(|()| exit_code(program));
    // From here on its number may be another's.
    *watched.lock().unwrap_or_else(PoisonError::into_inner) = None;
    let _ = kill_process_group(program, Signal::KILL);
    let _ = confine::kill_descendants();
    code
}

/// Starts this program again, which confines itself and becomes the other one; gives its input as
/// well.
fn start(settings: &HostSettings) -> io::Result<(Pid, ChildStdin)> {
    let settings = serde_json::to_string(settings)?;
    let program = std::env::current_exe()?;
    let mut command = Command::new(program);
    let mut child = command.arg(TOOL_HOST).arg(settings).stdin(Stdio::piped()).spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let none = || io::Error::other("a process has no number or no input");
    Ok((pid.ok_or_else(none)?, child.stdin.take().ok_or_else(none)?))
}

/// Writes the input of this process into that of the program, which ends with it.
fn hand_over(mut program: ChildStdin) {
    let mut input = io::stdin().lock();
    if io::copy(&mut input, &mut program).is_err() {
        drop(program);
        // Who writes must not wait for a program that reads no more.
        let _ = io::copy(&mut input, &mut io::sink());
    }
}

/// Leaves the output to the program alone, so that the agent sees when the program closes it.
fn silence() -> io::Result<()> {
    let nothing = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(rustix::stdio::dup2_stderr(&nothing)?)
}

/// Waits until nothing can write to the standard input any more.
fn wait_for_closed_input(program: Pid) {
    let (input, most) = (io::stdin(), Timespec { tv_sec: ORPHANS_SECS, tv_nsec: 0 });
    loop {
        let mut watched = [PollFd::new(&input, PollFlags::empty())];
        if poll(&mut watched, Some(&most)).is_ok() && !watched[0].revents().is_empty() {
            return;
        }
        orphans::children().into_iter().filter(|it| *it != program).for_each(orphans::reap);
    }
}

/// Ends the program, whose input is closed.
fn end(watched: &Watched, time: Duration) {
    for signal in [Signal::TERM, Signal::KILL] {
        thread::sleep(time);
        let program = watched.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(program) = *program else { return };
        // It has no group of its own before it has begun its session.
        let _ = kill_process_group(program, signal).or_else(|_| kill_process(program, signal));
    }
}

/// The exit code of the program when it has ended. Its number stays its own.
fn exit_code(program: Pid) -> io::Result<u8> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let status = loop {
        match waitid(WaitId::Pid(program), options) {
            Err(rustix::io::Errno::INTR) | Ok(None) => {}
            Ok(Some(status)) => break status,
            Err(error) => return Err(error.into()),
        }
    };
    let signalled = status.terminating_signal().map(|signal| SIGNALLED + signal);
    let code = status.exit_status().or(signalled);
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
