//! A folder with a workspace, and the command `gannet agent` that works there with a scripted
//! server.

use super::server::{ChatServer, ServerAnswer};
use crate::gannet::{command, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

/// Longer than any test takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether the machine can confine the tools; says so if not.
pub fn is_confined(test: &str) -> bool {
    let support = confine::support();
    if let Err(missing) = &support {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: {missing}");
    }
    support.is_ok()
}

/// The arguments of `bash`.
pub fn bash(command: &str) -> Value {
    json!({"command": command, "wait_s": 60})
}

/// The arguments of `write`.
pub fn write(path: &str, content: &str) -> Value {
    json!({"path": path, "content": content})
}

/// The arguments of `read`.
pub fn read(path: &str) -> Value {
    json!({"path": path, "from": null, "lines": null})
}

/// A folder with a workspace, a folder of state, a home and a server.
pub struct AgentScene {
    folder: TempDir,
    pub server: ChatServer,
}

impl AgentScene {
    /// A scene whose server gives these answers.
    pub fn new(script: Vec<ServerAnswer>) -> Self {
        Self::with(ChatServer::scripted(script))
    }

    pub fn with(server: ChatServer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["work", "state", "home", "tmp"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder, server }
    }

    /// A folder of the scene, without links.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    /// Writes a file of the scene, and its folders.
    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// The text of a file of the scene; `absent` without it.
    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|_| "absent".to_owned())
    }

    /// The command with the folders and the server as its only arguments.
    pub fn command(&self) -> Command {
        let mut command = command();
        command.arg("agent").arg("-C").arg(self.path("work"));
        command.arg("--state-dir").arg(self.path("state"));
        command.env("HOME", self.path("home")).env("TMPDIR", self.path("tmp"));
        command.args(["--url", &self.server.url]);
        command
    }

    /// Starts it with `--json` and further arguments.
    pub fn start<S: AsRef<OsStr>>(&self, args: &[S]) -> RunningAgent {
        let mut command = self.command();
        command.arg("--json").args(args);
        RunningAgent::start(command)
    }

    /// Runs it with `--json` to its end.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> AgentEnd {
        self.start(args).end()
    }
}

/// The command at work.
pub struct RunningAgent {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    errors: JoinHandle<String>,
    /// What was read of its output.
    events: Vec<Value>,
}

/// How it ended, and what it printed.
#[derive(Debug)]
pub struct AgentEnd {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    pub events: Vec<Value>,
    pub err: String,
}

impl RunningAgent {
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let mut output = BufReader::new(child.stdout.take().unwrap()).split(b'\n');
        std::thread::spawn(move || {
            while let Some(Ok(line)) = output.next() {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut errors = child.stderr.take().unwrap();
        let errors = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = errors.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let input = child.stdin.take();
        Self { child, input, lines, errors, events: Vec::new() }
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next event; `None` after the last.
    pub fn any_event(&mut self) -> Option<Value> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => self.events.push(event(&line)),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing comes after {:?}", self.events),
        }
        self.events.last().cloned()
    }

    /// The next event with this name, which comes.
    pub fn event(&mut self, name: &str) -> Value {
        loop {
            let event = self.any_event();
            let event = event.unwrap_or_else(|| panic!("no {name} in {:?}", self.events));
            if event["event"] == name {
                return event;
            }
        }
    }

    /// Whether it neither ends nor prints anything for a while.
    pub fn waits(&mut self) -> bool {
        let is_silent = self.lines.recv_timeout(Duration::from_millis(400)).is_err();
        is_silent && self.child.try_wait().unwrap().is_none()
    }

    /// Writes a line of its input.
    pub fn say(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Ends its input.
    pub fn end_input(&mut self) {
        self.input = None;
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(id, signal).unwrap();
    }

    /// Ends it at once.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends its input, unless it has ended, and waits for its end.
    pub fn end(mut self) -> AgentEnd {
        self.end_input();
        let mut code = None;
        until("the command ends", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        let lines = self.lines.iter().map(|line| event(&line));
        self.events.extend(lines);
        let err = self.errors.join().unwrap();
        AgentEnd { code: code.unwrap().code(), events: self.events, err }
    }
}

impl AgentEnd {
    /// The events of this name.
    pub fn all(&self, name: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["event"] == name).collect()
    }

    /// The texts of the events of this name, joined.
    pub fn text(&self, name: &str) -> String {
        self.all(name).into_iter().filter_map(|event| event["text"].as_str()).collect()
    }
}

/// A line of the output, which is one known event.
fn event(line: &[u8]) -> Value {
    let text = std::str::from_utf8(line).expect("UTF-8");
    let event: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("JSON: {text}"));
    let members = match event["event"].as_str().unwrap_or_default() {
        "session" => json!({"name": "*", "model": "", "folder": ""}),
        "text" | "reasoning" => json!({"text": ""}),
        "call" => json!({"id": "", "tool": "", "arguments": "*"}),
        "question" if event["path"].is_null() => {
            json!({"id": "", "tool": "", "arguments": "*", "rule": "*"})
        }
        "question" => json!({"path": "", "kind": "", "difference": ""}),
        "rendered_anew" => json!({"tokens": 0}),
        "result" => json!({"id": "", "ok": true, "text": "", "changed": []}),
        "compaction" if event["failed"] == true => json!({}),
        "compaction" => json!({"failed": false, "before": 0, "after": 0}),
        "usage" => json!({"prompt_tokens": 0, "cached_tokens": 0, "completion_tokens": 0}),
        "end" => json!({"end": ""}),
        _ => panic!("an unknown event: {text}"),
    };
    for (name, kind) in members.as_object().unwrap() {
        let found = event.get(name).unwrap_or_else(|| panic!("{name} is missing: {text}"));
        let is_same = std::mem::discriminant(found) == std::mem::discriminant(kind);
        assert!(*kind == "*" || is_same, "{name}: {text}");
    }
    event
}

/// All files below a folder with their contents, and links with their targets.
pub fn tree(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let (path, kind) = entry.map(|it| (it.path(), it.file_type().unwrap())).unwrap();
        if kind.is_dir() {
            found.push((path.clone(), Vec::new()));
            found.extend(tree(&path));
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).unwrap();
            found.push((path, target.into_os_string().into_encoded_bytes()));
        } else {
            let bytes = fs::read(&path).unwrap();
            found.push((path, bytes));
        }
    }
    found.sort();
    found
}
