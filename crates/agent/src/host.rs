//! The loop of the process that has the tools: requests come as lines, are carried out in order,
//! and are answered with lines.
//!
//! Invariant: every line but a cancellation has one answer, whatever it holds. When the input
//! ends, no job is left.

use crate::error::ToolError;
use crate::guarded::Guard;
use crate::guarded_change::GuardedChange;
use crate::interrupt::Interrupt;
use crate::orphans;
use crate::request::{ACCEPT, GUARD, GuardedReport, JOBS, LEAVE, Line, ToolAnswer, ToolRequest};
use crate::tool::{ToolOutput, arguments};
use crate::tools::TOOLS;
use crate::tools::instructions::{INSTRUCTIONS, instructions};
use crate::tools::preview::{PREVIEW, preview};
use crate::tools::restore::{RESTORE, restore};
use crate::workspace::ToolWorkspace;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Requests that are read before they are carried out.
const MAX_WAITING: usize = 16;

/// Changes of guarded files that one answer reports; others are undone and counted.
const MAX_REPORTS: usize = 100;

/// Names of files that a note has.
const MAX_NAMES: usize = 10;

/// Time between two looks at guarded files while processes run, and how many times as long as a
/// look it is at least.
const LOOK: Duration = Duration::from_millis(200);
const LOOKS: u32 = 10;

/// The tools of a workspace and the guard of its files.
pub struct Host {
    workspace: ToolWorkspace,
    guard: Guard,
    /// Undone changes of guarded files, by the numbers of their reports.
    undone: Vec<GuardedChange>,
    /// Changes that no answer has reported, of each file the last.
    meanwhile: BTreeMap<PathBuf, GuardedChange>,
    /// Whether a process may have changed files after the last check.
    is_watching: bool,
    has_orphans: bool,
    leaves_files: bool,
}

impl Host {
    /// The tools of `workspace`, whose guarded files are as they shall be.
    pub fn new(workspace: ToolWorkspace) -> Self {
        let guard = Guard::new(workspace.root());
        let (undone, meanwhile) = (Vec::new(), BTreeMap::new());
        let (is_watching, has_orphans, leaves_files) = (false, false, false);
        Self { workspace, guard, undone, meanwhile, is_watching, has_orphans, leaves_files }
    }

    /// Guards files of further folders too, in which the tools write.
    pub fn guarding(mut self, folders: &[PathBuf]) -> Self {
        if !folders.is_empty() {
            self.guard = Guard::with_folders(self.workspace.root(), folders);
        }
        self
    }

    /// As [`new`](Self::new), for a process that has no children but the commands of the
    /// workspace: it becomes the parent of processes that leave the group of their command, and
    /// ends them too.
    ///
    /// # Errors
    ///
    /// If the system does not support it.
    pub fn with_orphans(workspace: ToolWorkspace) -> io::Result<Self> {
        orphans::adopt()?;
        orphans::check()?;
        Ok(Self { has_orphans: true, ..Self::new(workspace) })
    }

    /// Carries out the requests of `input` in order, and writes one line for each into `output`.
    /// At the end of `input` a command that is waited for is ended, and then all jobs.
    ///
    /// A thread reads ahead, so that requests can be cancelled. A process that restricts itself
    /// does so before.
    ///
    /// # Errors
    ///
    /// If the input cannot be read, the output cannot be written or no thread can be started.
    pub fn serve(&mut self, input: impl BufRead + Send, output: impl Write) -> io::Result<()> {
        let interrupt = self.workspace.interrupt();
        let (sender, lines) = sync_channel(MAX_WAITING);
        thread::scope(|scope| {
            let reader = thread::Builder::new().name("requests".to_owned());
            let reader = reader.spawn_scoped(scope, move || read(input, &interrupt, &sender))?;
            let served = self.answer_all(&lines, output);
            // A reader that waits for a place must not wait for ever.
            drop(lines);
            self.end();
            let read = reader.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
            served.and(read)
        })
    }

    /// Carries out one request.
    pub fn answer(&mut self, request: ToolRequest) -> ToolAnswer {
        let ToolRequest { id, tool, arguments, max_bytes, others } = request;
        self.workspace.interrupt.start(id);
        self.workspace.set_limit(max_bytes.unwrap_or(crate::tool_result::MAX_RESULT_BYTES));
        let own = TOOLS.iter().find(|row| row.name == tool);
        let writes = own.is_some_and(|row| row.writes) || tool == GUARD;
        // What is not the user's is checked; other changes are what shall be.
        let is_later = tool == GUARD && arguments["check"] == true;
        let is_watched = self.is_watching || others || is_later;
        let earlier = if writes || self.is_watching { self.before(is_watched) } else { Vec::new() };
        let result = self.call(&tool, arguments);
        let later = if writes || self.is_watching { self.after() } else { Vec::new() };
        self.workspace.interrupt.finish();
        let changes = earlier.into_iter().chain(later);
        self.meanwhile.extend(changes.map(|change| (change.path.clone(), change)));
        // Other requests are the agent's own, which offers no changes after them.
        let is_call = own.is_some() || tool == GUARD;
        self.report(id, result, is_call)
    }

    /// Whether the temporary files are another process's from now on.
    pub(crate) fn leaves_files(&self) -> bool {
        self.leaves_files
    }

    fn answer_all(&mut self, lines: &Receiver<Line>, mut output: impl Write) -> io::Result<()> {
        while let Some(line) = self.next(lines) {
            let answer = match line {
                Line::Call(request) => self.answer(request),
                Line::Malformed(id, text) => ToolAnswer::refused(id, text),
                Line::Cancel(_) => continue,
            };
            let mut line = serde_json::to_vec(&answer)?;
            line.push(b'\n');
            output.write_all(&line)?;
            output.flush()?;
        }
        Ok(())
    }

    /// The next line; while processes run, guarded files are looked at meanwhile.
    fn next(&mut self, lines: &Receiver<Line>) -> Option<Line> {
        let mut pause = LOOK;
        while self.is_watching {
            match lines.recv_timeout(pause) {
                Ok(line) => return Some(line),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let begun = Instant::now();
            for change in self.after() {
                self.meanwhile.insert(change.path.clone(), change);
            }
            pause = LOOK.max(begun.elapsed() * LOOKS);
        }
        lines.recv().ok()
    }

    /// Ends all processes and undoes what they changed.
    fn end(&mut self) {
        if self.has_orphans {
            // What its parent left is this process's own, and keeps no group from its end.
            self.workspace.jobs.kill();
            let _ = confine::kill_descendants();
        }
        self.workspace.end_jobs();
        self.guard.check();
    }

    /// Looks at the guarded files before a call: what a process changed is undone; what the user
    /// changed while none ran stays.
    fn before(&mut self, is_watched: bool) -> Vec<GuardedChange> {
        if is_watched {
            return self.after();
        }
        self.guard.refresh();
        Vec::new()
    }

    fn after(&mut self) -> Vec<GuardedChange> {
        // In this order, since a process that ends in between may change files before.
        self.is_watching = self.has_processes();
        self.guard.check()
    }

    fn has_processes(&mut self) -> bool {
        let is_active = self.workspace.jobs.running() > 0;
        if !self.has_orphans {
            return is_active;
        }
        let others = orphans::children();
        let others = others.into_iter().filter(|child| !self.workspace.jobs.has(*child));
        others.for_each(orphans::reap);
        is_active || !orphans::children().is_empty()
    }

    fn call(&mut self, name: &str, value: Value) -> Result<ToolOutput, ToolError> {
        if self.workspace.interrupt.is_cancelled() {
            return Err(ToolError::new("interrupted before it started"));
        }
        if name == ACCEPT {
            return self.accept(value);
        }
        if name == GUARD {
            return Ok(ToolOutput::default());
        }
        if name == PREVIEW {
            return preview(&mut self.workspace, value);
        }
        if name == JOBS {
            return Ok(ToolOutput::text(self.workspace.jobs.list()));
        }
        if name == LEAVE {
            self.leaves_files = true;
            self.end();
            return Ok(ToolOutput::text(String::new()));
        }
        if name == INSTRUCTIONS {
            return instructions(&self.workspace);
        }
        if name == RESTORE {
            return restore(&mut self.workspace, value);
        }
        let Some(tool) = TOOLS.iter().find(|tool| tool.name == name) else {
            let names: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
            let text = format!("there is no tool {name}; expected one of {}", names.join(", "));
            return Err(ToolError::new(text));
        };
        (tool.run)(&mut self.workspace, value)
    }

    fn accept(&mut self, value: Value) -> Result<ToolOutput, ToolError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Accept {
            change: usize,
        }
        let Accept { change } = arguments(ACCEPT, value)?;
        let Some(change) = self.undone.get(change) else {
            let text = format!("there is no change {change}; {} were undone", self.undone.len());
            return Err(ToolError::new(text));
        };
        self.guard.apply(change)?;
        Ok(ToolOutput::text(format!("{} {}", change.kind(), change.name().display())))
    }

    fn report(
        &mut self,
        id: u64,
        result: Result<ToolOutput, ToolError>,
        is_call: bool,
    ) -> ToolAnswer {
        let first = self.undone.len();
        let (changes, problems) = match is_call {
            true => (std::mem::take(&mut self.meanwhile), self.guard.problems()),
            false => Default::default(),
        };
        let left_out = changes.len().saturating_sub(MAX_REPORTS);
        self.undone.extend(changes.into_values().take(MAX_REPORTS));
        let numbered = (first..).zip(&self.undone[first..]);
        let guarded: Vec<_> =
            numbered.map(|(number, change)| GuardedReport::of(number, change)).collect();
        let ok = result.is_ok();
        let output = result.unwrap_or_else(|error| ToolOutput::text(error.to_string()));
        let text = output.text + &note(&guarded, left_out, &problems);
        // Without its file the result is shortened all the same.
        let text = self.workspace.fit(text).unwrap_or_else(|error| error.to_string());
        let jobs = Some(self.workspace.jobs.running());
        ToolAnswer { id: Some(id), ok, text, changed: output.changed, guarded, jobs }
    }
}

/// What the model reads of changes that were undone or could not be, and of problems.
fn note(guarded: &[GuardedReport], left_out: usize, problems: &[String]) -> String {
    let paths = |is_undone: bool| {
        let of: Vec<&str> =
            guarded.iter().filter(|it| it.undone == is_undone).map(|it| &*it.path).collect();
        let more = if of.len() > MAX_NAMES { " and more" } else { "" };
        (!of.is_empty()).then(|| format!("{}{more}", of[..of.len().min(MAX_NAMES)].join(", ")))
    };
    let mut text = String::new();
    let mut add = |line: String| text.push_str(&format!("\n[{line}]\n"));
    if let Some(paths) = paths(true) {
        let need = "changes of guarded files need the user's consent and were undone";
        add(format!("{need}: {paths}"));
    }
    if let Some(paths) = paths(false) {
        let need = "changes of guarded files need the user's consent and could not be undone";
        add(format!("{need}: {paths}"));
    }
    if left_out > 0 {
        add(format!("{left_out} more changes of guarded files were undone and are not offered"));
    }
    problems.iter().for_each(|problem| add(format!("guarded files: {problem}")));
    text
}

/// Reads lines to the end of the input; cancellations take effect at once.
fn read(
    mut input: impl BufRead,
    interrupt: &Interrupt,
    sender: &SyncSender<Line>,
) -> io::Result<()> {
    let result = loop {
        match Line::next(&mut input) {
            Ok(Some(Line::Cancel(id))) => interrupt.cancel(id),
            Ok(Some(line)) => {
                if sender.send(line).is_err() {
                    break Ok(());
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    interrupt.end();
    result
}
