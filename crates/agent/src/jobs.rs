//! Commands as process groups: each writes into a file, and ends when it is stopped or the
//! workspace is dropped.
//!
//! Invariant: a process that a command starts and that stays in its group does not outlive the
//! [`Jobs`]. One that leaves the group is ended by the process that holds them, as a subreaper.

use crate::command_shell::CommandShell;
use crate::error::ToolError;
use crate::files::{open_regular, unused_file};
use crate::interrupt::Interrupt;
use crate::tool_result::{fitted_file, last_character_end};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time that a command has to end after SIGTERM, and the system to end it after SIGKILL.
const MAX_STOP_TIME: Duration = Duration::from_secs(2);

/// Longest time between two looks at a command that is waited for.
const MAX_PAUSE: Duration = Duration::from_millis(20);

/// Most bytes of a command in a list.
const MAX_COMMAND: usize = 200;

/// The commands of a workspace, by numbers from 1.
pub(crate) struct Jobs {
    /// Where the outputs are.
    folder: PathBuf,
    shell: CommandShell,
    interrupt: Interrupt,
    jobs: Vec<Job>,
}

/// One command.
struct Job {
    command: String,
    child: Child,
    /// The process group, until it has no process.
    group: Option<Pid>,
    /// Its output, open so that no other file is put in its place; `None` once all of it was
    /// looked at.
    output: Option<File>,
    path: PathBuf,
    /// Bytes of the output that were looked at.
    seen: u64,
    started: Instant,
    ended: Option<(ExitStatus, Duration)>,
}

/// How a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    Running,
    /// The command ended; processes that it started still run.
    LeftProcesses,
    Ended,
}

impl Jobs {
    /// No jobs; their outputs will be in `folder`.
    pub fn new(folder: PathBuf, shell: CommandShell, interrupt: Interrupt) -> Self {
        Self { folder, shell, interrupt, jobs: Vec::new() }
    }

    /// Starts a command of the shell in the folder `root` and returns its number.
    ///
    /// # Errors
    ///
    /// If its output cannot be written or no shell can be started.
    pub fn start(&mut self, command: &str, root: &Path) -> Result<usize, ToolError> {
        let id = self.jobs.len() + 1;
        let failed = |source| ToolError::system("cannot start the command", source);
        let (written, path) = unused_file(&self.folder, &format!("output-{id}")).map_err(failed)?;
        // Opened anew, since what reads must have a place of its own in the file.
        let output = Some(open_regular(&path).map_err(failed)?);
        let child = spawn(self.shell.command(command), root, written).map_err(failed)?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let started = Instant::now();
        let command = command.to_owned();
        self.jobs.push(Job { command, child, group, output, path, seen: 0, started, ended: None });
        Ok(id)
    }

    /// Waits until the command has ended, for at most `time` or until the call is interrupted.
    ///
    /// # Errors
    ///
    /// If there is no such job.
    pub fn wait(&mut self, id: usize, time: Duration) -> Result<JobState, ToolError> {
        let interrupt = self.interrupt.clone();
        let job = self.job(id)?;
        job.poll_until(time, |job| job.ended.is_some() || interrupt.is_set());
        Ok(job.state())
    }

    /// Ends the command with all processes of its group.
    ///
    /// # Errors
    ///
    /// If there is no such job.
    pub fn stop(&mut self, id: usize) -> Result<JobState, ToolError> {
        let job = self.job(id)?;
        for signal in [Signal::TERM, Signal::KILL] {
            job.signal(signal);
            job.poll_until(MAX_STOP_TIME, |job| job.group.is_none());
        }
        Ok(job.state())
    }

    /// How the command stands, and its output since the last look in at most about `limit` bytes.
    ///
    /// # Errors
    ///
    /// If there is no such job or its output cannot be read.
    pub fn look(&mut self, id: usize, limit: usize) -> Result<String, ToolError> {
        let job = self.job(id)?;
        job.poll();
        let failed = |source| ToolError::system("cannot read the output of the command", source);
        let (status, state) = (job.status(id), job.state());
        let left = limit.saturating_sub(status.len() + 1);
        let is_first = job.seen == 0;
        let output = job.new_output(left).map_err(failed)?;
        if state == JobState::Ended {
            // A session has thousands of commands, and a process fewer open files.
            job.output = None;
        }
        Ok(match (output.is_empty(), is_first) {
            (false, _) => format!("{status}\n{output}"),
            (true, true) => format!("{status}; no output"),
            (true, false) => format!("{status}; no new output"),
        })
    }

    /// Commands of which a process may still run.
    pub fn running(&mut self) -> usize {
        self.jobs.iter_mut().for_each(Job::poll);
        self.jobs.iter().filter(|job| job.group.is_some()).count()
    }

    /// A line for each of these commands: how it stands, and its first line.
    pub fn list(&mut self) -> String {
        self.jobs.iter_mut().for_each(Job::poll);
        let jobs = (1..).zip(&self.jobs).filter(|(_, job)| job.group.is_some());
        let line = |(id, job): (usize, &Job)| {
            let command = job.command.trim().lines().next().unwrap_or_default();
            let command = crate::printable::printable(command.as_bytes());
            let shown = &command[..command.floor_char_boundary(MAX_COMMAND)];
            let more = if shown.len() < job.command.trim().len() { " ..." } else { "" };
            format!("{} {shown}{more}\n", job.status(id))
        };
        jobs.map(line).collect()
    }

    /// Ends all commands at once.
    pub fn end(&mut self) {
        self.kill();
        let end = Instant::now() + MAX_STOP_TIME;
        for job in &mut self.jobs {
            let left = end.saturating_duration_since(Instant::now());
            job.poll_until(left, |job| job.group.is_none());
        }
    }

    /// Sends all commands the signal that ends them, without waiting.
    pub fn kill(&mut self) {
        self.jobs.iter_mut().for_each(Job::poll);
        self.jobs.iter().for_each(|job| job.signal(Signal::KILL));
    }

    /// Whether the process `pid` is that of a command.
    pub fn has(&self, pid: Pid) -> bool {
        let raw = pid.as_raw_nonzero().get().unsigned_abs();
        self.jobs.iter().any(|job| job.child.id() == raw && job.ended.is_none())
    }

    fn job(&mut self, id: usize) -> Result<&mut Job, ToolError> {
        let count = self.jobs.len();
        let job = id.checked_sub(1).and_then(|index| self.jobs.get_mut(index));
        job.ok_or_else(|| match count {
            0 => ToolError::new(format!("there is no job {id}: no command was started")),
            _ => {
                ToolError::new(format!("there is no job {id}; expected a number from 1 to {count}"))
            }
        })
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.end();
    }
}

impl Job {
    /// Takes note of an end. The group of a command that ended is looked at until it is empty,
    /// since its number then belongs to others.
    fn poll(&mut self) {
        if self.ended.is_none() {
            let status = match self.child.try_wait() {
                Ok(status) => status,
                // Another took note of its end: it was killed with all others.
                Err(_) => Some(ExitStatus::from_raw(Signal::KILL.as_raw())),
            };
            self.ended = status.map(|status| (status, self.started.elapsed()));
        }
        if let (Some(_), Some(group)) = (self.ended, self.group)
            && test_kill_process_group(group) == Err(rustix::io::Errno::SRCH)
        {
            self.group = None;
        }
    }

    /// The output since the last look, in about `limit` bytes.
    fn new_output(&mut self, limit: usize) -> io::Result<String> {
        let Some(output) = &self.output else { return Ok(String::new()) };
        let mut length = output.metadata()?.len();
        if self.state() != JobState::Ended {
            length = last_character_end(output, (self.seen, length))?;
        }
        let text = fitted_file(output, &self.path, (self.seen, length), limit)?;
        self.seen = length;
        Ok(text)
    }

    fn poll_until(&mut self, time: Duration, is_done: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        let mut pause = Duration::from_millis(1);
        self.poll();
        while !is_done(self) && begun.elapsed() < time {
            thread::sleep(pause.min(time.saturating_sub(begun.elapsed())));
            pause = (pause * 2).min(MAX_PAUSE);
            self.poll();
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // It may have ended by itself.
            let _ = kill_process_group(group, signal);
        }
    }

    fn state(&self) -> JobState {
        match (self.ended, self.group) {
            (None, _) => JobState::Running,
            (Some(_), Some(_)) => JobState::LeftProcesses,
            (Some(_), None) => JobState::Ended,
        }
    }

    fn status(&self, id: usize) -> String {
        let Some((status, time)) = self.ended else {
            let seconds = self.started.elapsed().as_secs();
            return format!("[job {id} still runs after {seconds} s]");
        };
        let end = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("ended by signal {signal}"),
            (None, None) => "ended".to_owned(),
        };
        // The model gains nothing by the time of a quick command, and reads each token.
        let time = match time.as_secs() {
            0 => String::new(),
            _ => format!(" after {:.1} s", time.as_secs_f64()),
        };
        match self.group {
            None => format!("[{end}{time}]"),
            Some(_) => format!("[{end}{time}; job {id}: processes that it started still run]"),
        }
    }
}

fn spawn(mut command: Command, root: &Path, output: File) -> io::Result<Child> {
    command
        .current_dir(root)
        // Programs that wait for a key after each page would wait for ever.
        .envs([("PAGER", "cat"), ("GIT_PAGER", "cat"), ("TERM", "dumb")])
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0)
        .spawn()
}
