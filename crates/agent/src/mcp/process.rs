//! The process of a server: started with pipes, ended by the end of its input and then by signals.
//!
//! Invariant: a process is not reaped before its group was killed, so that no signal reaches
//! another process that has got its number. One that is watched has no group: it ends, with all
//! that the server has started, by the end of its input.

use super::context::McpProcess;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two looks whether a process has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Time that a process which was killed has to end.
const KILLED: Duration = Duration::from_secs(1);
/// Time that a process which is watched has to end, with all that the server has started.
const WATCHED: Duration = Duration::from_secs(20);
/// Time that [`ServerProcess::end`] takes at most beyond twice what it is given.
pub(super) const MAX_END: Duration = Duration::from_secs(22);

/// A process of a server. One that is not watched is killed when this is dropped.
#[derive(Debug)]
pub(super) struct ServerProcess {
    pid: Pid,
    is_watched: bool,
    /// `None` once it is reaped.
    child: Mutex<Option<Child>>,
    /// Whether it was sent a signal before it had ended.
    is_signalled: AtomicBool,
}

/// The ends of a process's standard streams.
#[derive(Debug)]
pub(super) struct ServerPipes {
    pub input: OwnedFd,
    pub output: OwnedFd,
    pub log: OwnedFd,
}

impl ServerProcess {
    /// Starts a process.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub(super) fn start(process: McpProcess) -> io::Result<(Self, ServerPipes)> {
        let McpProcess { mut command, is_watched } = process;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if !is_watched {
            command.process_group(0);
        }
        let mut child = command.spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
        let process = Self {
            pid: pid.ok_or_else(missing)?,
            is_watched,
            child: Mutex::new(Some(child)),
            is_signalled: AtomicBool::new(false),
        };
        let (Some(input), Some(output), Some(log)) = pipes else { return Err(missing()) };
        let pipes = ServerPipes { input: input.into(), output: output.into(), log: log.into() };
        Ok((process, pipes))
    }

    /// Whether the process has ended, of itself or by a signal.
    fn is_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(self.pid), options), Ok(None))
    }

    async fn ends_within(&self, most: Duration) -> bool {
        let end = Instant::now() + most;
        loop {
            if self.is_ended() {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Sends a signal to the group of a process that is not watched.
    fn signal(&self, signal: Signal) {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if child.is_none() || self.is_watched {
            return;
        }
        if !self.is_ended() {
            self.is_signalled.store(true, Ordering::Relaxed);
        }
        let _ = kill_process_group(self.pid, signal);
    }

    /// Kills the group of a process that is not watched; another one ends by the end of its input.
    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Waits for the process, whose input is closed, to end. One that is not watched gets the
    /// signal `SIGTERM` after `most`, and `SIGKILL` after as much again, and what is left of its
    /// group is killed. The status is returned if the process has ended of itself.
    pub(super) async fn end(&self, most: Duration) -> Option<ExitStatus> {
        let has_ended = self.ends_within(if self.is_watched { WATCHED } else { most }).await;
        if !has_ended && self.is_watched {
            self.is_signalled.store(true, Ordering::Relaxed);
            let _ = kill_process(self.pid, Signal::KILL);
        } else if !has_ended {
            self.signal(Signal::TERM);
            self.ends_within(most).await;
        }
        self.kill();
        self.ends_within(KILLED).await;
        self.reap().filter(|_| !self.is_signalled.load(Ordering::Relaxed))
    }

    fn reap(&self) -> Option<ExitStatus> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let status = child.as_mut()?.try_wait().ok()??;
        *child = None;
        Some(status)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill();
        let end = Instant::now() + KILLED;
        while self.reap().is_none() && Instant::now() < end {
            if self.child.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
