//! An editor: a client of the protocol, by lines.

use crate::gannet::command;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longer than any test takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a workspace and with the state of agents.
pub struct Place {
    folder: tempfile::TempDir,
}

/// An editor with an agent.
pub struct Editor {
    pub child: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Value>,
    asked: u64,
    /// Updates and requests that have come, in their order.
    pub seen: Vec<Value>,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("work")).unwrap();
        Self { folder }
    }

    /// The workspace, without links.
    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work").canonicalize().unwrap()
    }

    pub fn write(&self, name: &str, content: &str) {
        std::fs::write(self.work().join(name), content).unwrap();
    }

    /// The content of a file, or `absent`.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.work().join(name)).unwrap_or_else(|_| "absent".to_owned())
    }

    /// The files of the state of agents.
    pub fn state(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join("state/agent"));
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.unwrap().file_name().into_string().unwrap()
        };
        entries.into_iter().flatten().map(name).filter(|name| !name.starts_with('.')).collect()
    }

    /// The agent, which asks the model at `url`.
    pub fn agent(&self, url: &str, more: &[&str]) -> Child {
        let state = self.folder.path().join("state");
        let state = state.to_str().unwrap();
        let args = ["agent", "--acp", "--url", url, "--state-dir", state];
        let mut command = command();
        command.args(args).args(more).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().unwrap()
    }

    /// An editor whose agent asks the model at `url`.
    pub fn editor(&self, url: &str, more: &[&str]) -> Editor {
        let mut child = self.agent(url, more);
        let (sender, messages) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines() {
                let line = line.unwrap();
                let message: Value = serde_json::from_str(&line).unwrap_or(Value::Null);
                assert_eq!(message["jsonrpc"], "2.0", "{line}");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Editor { child, input, messages, asked: 0, seen: Vec::new() }
    }

    /// As [`Place::editor`], and a session in the workspace.
    pub fn session(&self, url: &str, more: &[&str]) -> (Editor, String) {
        let mut editor = self.editor(url, more);
        editor.initialize();
        let session = editor.new_session(&self.work());
        (editor, session)
    }
}

impl Editor {
    pub fn initialize(&mut self) -> Value {
        let capabilities = json!({"session": {"notices": {}}});
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        self.call("initialize", params).unwrap()
    }

    pub fn new_session(&mut self, folder: &Path) -> String {
        let result = self.call("session/new", json!({"cwd": folder, "mcpServers": []})).unwrap();
        result["sessionId"].as_str().unwrap().to_owned()
    }

    /// Sends a line as it is.
    pub fn line(&mut self, line: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line).and_then(|()| input.write_all(b"\n")).unwrap();
        input.flush().unwrap();
    }

    pub fn send(&mut self, message: &Value) {
        self.line(message.to_string().as_bytes());
    }

    /// Sends a request; gives its id.
    pub fn request(&mut self, method: &str, params: Value) -> u64 {
        self.asked += 1;
        let id = self.asked;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Sends a prompt; gives the id of the request.
    pub fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.request("session/prompt", json!({"sessionId": session, "prompt": prompt}))
    }

    /// Sends a prompt and waits for the end of the work; gives why it has ended.
    pub fn work(&mut self, session: &str, text: &str) -> String {
        let id = self.prompt(session, text);
        self.stop_reason(id)
    }

    /// The code of the error that a prompt comes to.
    pub fn work_error(&mut self, session: &str) -> i64 {
        let id = self.prompt(session, "x");
        self.result(id).unwrap_err()
    }

    pub fn stop_reason(&mut self, id: u64) -> String {
        self.result(id).unwrap()["stopReason"].as_str().unwrap().to_owned()
    }

    /// Sends a request and waits for its result, or the code of its error.
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value, i64> {
        let id = self.request(method, params);
        self.result(id)
    }

    /// Waits for the answer to a request.
    pub fn result(&mut self, id: u64) -> Result<Value, i64> {
        let is_answer = |message: &Value| message.get("method").is_none() && message["id"] == id;
        let answer = self.wait(is_answer);
        match answer.get("result") {
            Some(result) => Ok(result.clone()),
            None => Err(answer["error"]["code"].as_i64().unwrap()),
        }
    }

    /// Waits for a message, and keeps the updates and requests before it.
    pub fn wait(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.messages.recv_timeout(PATIENCE).expect("a message");
            if message.get("method").is_some() {
                self.seen.push(message.clone());
            }
            if is_it(&message) {
                return message;
            }
        }
    }

    /// Waits for an update of this kind.
    pub fn wait_update(&mut self, kind: &str) -> Value {
        let message = self.wait(|it| it["params"]["update"]["sessionUpdate"] == kind);
        message["params"]["update"].clone()
    }

    /// Waits for a question; gives its id and parameters.
    pub fn question(&mut self) -> (Value, Value) {
        let message = self.wait(|it| it["method"] == "session/request_permission");
        (message["id"].clone(), message["params"].clone())
    }

    /// Chooses an option of a question.
    pub fn choose(&mut self, question: &Value, option: &str) {
        let outcome = json!({"outcome": "selected", "optionId": option});
        self.answer(question, json!({"outcome": outcome}));
    }

    pub fn answer(&mut self, question: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": question, "result": result}));
    }

    /// The updates of this kind that have come.
    pub fn updates(&self, kind: &str) -> Vec<Value> {
        let updates = self.seen.iter().map(|message| &message["params"]["update"]);
        updates.filter(|update| update["sessionUpdate"] == kind).cloned().collect()
    }

    /// The texts of the updates of this kind, joined.
    pub fn texts(&self, kind: &str) -> String {
        let updates = self.updates(kind);
        updates.iter().map(|update| update["content"]["text"].as_str().unwrap()).collect()
    }

    /// Ends the input and waits for the end of the agent.
    pub fn end(mut self) -> ExitStatus {
        self.input = None;
        self.ended()
    }

    /// Waits for the end of the agent.
    pub fn ended(&mut self) -> ExitStatus {
        ended(&mut self.child)
    }
}

/// Waits for the end of a process.
pub fn ended(child: &mut Child) -> ExitStatus {
    let mut status = None;
    crate::gannet::until("the end of the agent", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

impl Drop for Editor {
    fn drop(&mut self) {
        // Where a test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
