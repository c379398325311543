//! The process of the tools as the agent sees it: calls go in as lines, answers come out.
//!
//! Invariant: at most one call is under way. The process ends when its input does, with all that it
//! has started.

use crate::files::unused_file;
use crate::host_settings::{HostSettings, HostStart, TOOL_HOST, WatchedSettings};
use crate::kept_files::KeptFiles;
use crate::request::{JOBS, LEAVE, MAX_LINE_BYTES, ToolAnswer};
use crate::tool_result::MAX_RESULT_BYTES;
use crate::tools::instructions::{INSTRUCTIONS, MAX_INSTRUCTIONS};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks whether a call is to be cancelled.
const LOOK: Duration = Duration::from_millis(50);
/// Time for the process to be ready.
const START: Duration = Duration::from_secs(20);
/// Time for a call to end that is cancelled.
const CANCELLED: Duration = Duration::from_secs(20);
/// Time for it to end, after which it is killed: more than what watches over it takes.
const END: Duration = Duration::from_secs(60);

/// Why the process of the tools is not there.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// It cannot be started, or does not answer.
    #[error("the process of the tools: {0}")]
    Io(#[from] io::Error),
    /// It says why it does not work.
    #[error("{0}")]
    Failed(String),
    /// It has ended.
    #[error("the process of the tools has ended{0}")]
    Ended(String),
}

/// The process of the tools.
#[derive(Debug)]
pub struct HostProcess {
    child: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<io::Result<Vec<u8>>>,
    calls: u64,
    /// Where the tools keep results.
    kept: PathBuf,
    /// Whether processes of other tools run in the workspace.
    pub(crate) has_others: bool,
}

impl HostProcess {
    /// Starts `program` with the tools, and waits until it is ready. `environment` is all that it
    /// gets.
    ///
    /// # Errors
    /// If it cannot be started, or the confinement is not possible.
    pub fn start(
        program: &Path,
        settings: &HostSettings,
        environment: Vec<(OsString, OsString)>,
    ) -> Result<Self, HostError> {
        // What a command can signal must not be what its end is left to.
        let watched = WatchedSettings { watch: settings.clone() };
        let mut child = Command::new(program)
            .arg(TOOL_HOST)
            .arg(serde_json::to_string(&watched).map_err(io::Error::from)?)
            .current_dir(&settings.workspace)
            .env_clear()
            .envs(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (requests, output) = (child.stdin.take(), child.stdout.take());
        let (sender, answers) = channel();
        let output = output.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        thread::Builder::new().name("answers".to_owned()).spawn(move || {
            let mut output = BufReader::new(output);
            while let Some(line) = next_line(&mut output).transpose() {
                let is_last = line.is_err();
                if sender.send(line).is_err() || is_last {
                    return;
                }
            }
        })?;
        let kept = settings.kept().to_owned();
        let mut process = Self { child, requests, answers, calls: 0, kept, has_others: false };
        match process.read(START)? {
            HostStart::Ready => Ok(process),
            HostStart::Failed(problem) => Err(HostError::Failed(problem)),
        }
    }

    /// Calls a tool and waits for its answer; `is_cancelled` is asked meanwhile.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn call(
        &mut self,
        (tool, arguments): (&str, &Value),
        max_bytes: usize,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<ToolAnswer, HostError> {
        self.calls += 1;
        let id = self.calls;
        self.send(&json!({
            "id": id, "tool": tool, "arguments": arguments, "max_bytes": max_bytes,
            "others": self.has_others,
        }))?;
        let mut cancelled = None::<Instant>;
        loop {
            match self.answers.recv_timeout(LOOK) {
                Ok(line) => return self.answer(id, &line?),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            match cancelled {
                None if is_cancelled() => {
                    cancelled = Some(Instant::now());
                    self.send(&json!({"cancel": id}))?;
                }
                Some(begun) if begun.elapsed() > CANCELLED => {
                    self.requests = None;
                    return Err(HostError::Failed("the process of the tools hangs".to_owned()));
                }
                _ => {}
            }
        }
    }

    /// The answer to the request `id`, which this line is.
    fn answer(&mut self, id: u64, line: &[u8]) -> Result<ToolAnswer, HostError> {
        let answer: ToolAnswer = parsed(line)?;
        if answer.id != Some(id) {
            self.requests = None;
            let found = format!("expected the answer {id} of the tools, found {:?}", answer.id);
            return Err(HostError::Failed(found));
        }
        Ok(answer)
    }

    /// Ends all commands before another process of the tools starts, to which this one leaves its
    /// files.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn leave(&mut self) -> Result<(), HostError> {
        self.call((LEAVE, &json!({})), MAX_RESULT_BYTES, || false).map(drop)
    }

    /// The folder in which the tools keep results and contents before changes.
    pub fn kept(&self) -> &Path {
        &self.kept
    }

    /// The contents before changes that the tools keep.
    pub(crate) fn kept_files(&self) -> KeptFiles {
        KeptFiles::of_tools(&self.kept)
    }

    /// Keeps a result that the tools have not made; gives its file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn keep_result(&self, text: &str) -> io::Result<PathBuf> {
        let (mut new, file) = unused_file(&self.kept, "other-result")?;
        new.write_all(text.as_bytes())?;
        Ok(file)
    }

    /// The instructions of the workspace, `AGENTS.md`; `None` if there are none.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn instructions(&mut self) -> Result<Option<String>, HostError> {
        let answer = self.call((INSTRUCTIONS, &json!({})), MAX_INSTRUCTIONS + 1024, || false)?;
        Ok(answer.ok.then_some(answer.text))
    }

    /// The jobs that run, as lines, and their number.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn jobs(&mut self) -> Result<(Vec<String>, usize), HostError> {
        let answer = self.call((JOBS, &json!({})), MAX_RESULT_BYTES, || false)?;
        let lines = answer.text.lines().map(str::to_owned).collect();
        Ok((lines, answer.jobs.unwrap_or_default()))
    }

    fn send(&mut self, request: &Value) -> Result<(), HostError> {
        let mut line = request.to_string();
        line.push('\n');
        let sent = match &mut self.requests {
            Some(requests) => requests.write_all(line.as_bytes()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        match sent {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(self.ended()),
            sent => Ok(sent?),
        }
    }

    fn read<T: serde::de::DeserializeOwned>(&mut self, most: Duration) -> Result<T, HostError> {
        match self.answers.recv_timeout(most) {
            Ok(line) => parsed(&line?),
            Err(RecvTimeoutError::Timeout) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
        }
    }

    /// The error of a process that has ended, with how.
    fn ended(&mut self) -> HostError {
        let how = self.child.try_wait().ok().flatten();
        HostError::Ended(how.map_or_else(String::new, |status| format!(" ({status})")))
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        // It ends with its input, and kills what it has started.
        self.requests = None;
        let end = Instant::now() + END;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > end {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn parsed<T: serde::de::DeserializeOwned>(line: &[u8]) -> Result<T, HostError> {
    Ok(serde_json::from_slice(line).map_err(io::Error::from)?)
}

/// The next line; `None` at the end.
fn next_line(output: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let most = 2 * MAX_LINE_BYTES as u64;
    match output.take(most).read_until(b'\n', &mut line)? {
        0 => Ok(None),
        _ if line.ends_with(b"\n") => Ok(Some(line)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
