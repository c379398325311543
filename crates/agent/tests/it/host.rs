//! The loop of requests and answers.

use crate::support::{assert_has, open};
use agent::Host;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Cursor, PipeReader, PipeWriter, Write};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The answers to some lines, after which the input ends.
fn answers(folder: &Path, lines: &[u8]) -> Vec<Value> {
    let mut output = Vec::new();
    Host::new(open(folder)).serve(Cursor::new(lines.to_owned()), &mut output).unwrap();
    let parse = |line: &str| serde_json::from_str(line).unwrap();
    String::from_utf8(output).unwrap().lines().map(parse).collect()
}

/// A host in a thread, and the other ends of its pipes.
struct Running {
    requests: PipeWriter,
    answers: BufReader<PipeReader>,
    thread: JoinHandle<()>,
    folder: TempDir,
}

impl Running {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut host = Host::new(open(folder.path()));
        let (input, requests) = std::io::pipe().unwrap();
        let (answers, output) = std::io::pipe().unwrap();
        let serve = move || host.serve(BufReader::new(input), output).unwrap();
        let thread = thread::spawn(serve);
        Self { requests, answers: BufReader::new(answers), thread, folder }
    }

    fn send(&mut self, request: Value) {
        writeln!(self.requests, "{request}").unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, id: u64, tool: &str, arguments: Value) -> Value {
        self.send(json!({"id": id, "tool": tool, "arguments": arguments}));
        self.receive()
    }

    /// Ends the input and waits for the host.
    fn end(self) -> TempDir {
        drop(self.requests);
        self.thread.join().unwrap();
        self.folder
    }
}

#[test]
fn requests_are_answered_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let lines = concat!(
        r#"{"id":7,"tool":"write","arguments":{"path":"a/b","content":"1\n2\n"}}"#,
        "\n",
        r#"{"id":8,"tool":"read","arguments":{"path":"a/b","from":null,"lines":null},"#,
        r#""max_bytes":2000}"#,
        "\n",
        r#"{"id":9,"tool":"read","arguments":{"path":"none","from":null,"lines":null}}"#,
    );
    let answers = answers(folder.path(), lines.as_bytes());
    let written = json!({
        "id": 7, "ok": true, "text": "created a/b: 4 bytes, 2 lines", "changed": [{
            "path": "a/b", "before": "absent",
            "after": {"digest": "a6e2b7a040683432de03a18fd8a1939a2fdf82585b364bfc874bdd4095c4cae1"},
        }],
        "guarded": [], "jobs": 0,
    });
    assert_eq!(answers[0], written);
    assert_eq!(answers[1]["text"], "a/b: lines 1-2 of 2\n1\t1\n2\t2\n");
    assert_eq!((&answers[2]["id"], &answers[2]["ok"]), (&json!(9), &json!(false)));
    assert_eq!(answers.len(), 3);
}

#[test]
fn jobs_that_run_are_counted_and_listed() {
    let mut host = Running::new();
    let command = json!({"command": "sleep 100\necho never", "wait_s": 0});
    assert_eq!(host.ask(1, "bash", command)["jobs"], 1);
    let list = host.ask(2, "jobs", json!({}));
    assert_has(list["text"].as_str().unwrap(), &["[job 1 still runs after", "s] sleep 100 ...\n"]);
    let stopped = host.ask(3, "job", json!({"id": 1, "action": "stop"}));
    assert_eq!(stopped["jobs"], 0);
    assert_eq!(host.ask(4, "jobs", json!({}))["text"], "");
    host.end();
}

#[test]
fn malformed_requests_are_answered() {
    let long = [b"\"".repeat(9 << 20), b"\n".to_vec()].concat();
    let deep = [b"[".repeat(100_000), b"\n".to_vec()].concat();
    let cases: &[(&[u8], Value, &str)] = &[
        (b"\n", Value::Null, "no JSON"),
        (b"{\n", Value::Null, "no JSON"),
        (b"\xff\xfe\n", Value::Null, "no JSON"),
        (b"null\n", Value::Null, "no request"),
        (b"[1]\n", Value::Null, "no request"),
        (b"{\"id\":3}\n", json!(3), "missing field `tool`"),
        (b"{\"id\":-3,\"tool\":\"read\",\"arguments\":{}}\n", Value::Null, "id"),
        (b"{\"id\":4,\"tool\":\"none\",\"arguments\":{}}\n", json!(4), "no tool none"),
        (b"{\"id\":4,\"tool\":\"read\",\"arguments\":[]}\n", json!(4), "wrong arguments of read"),
        (b"{\"id\":4,\"tool\":\"read\",\"arguments\":{},\"x\":1}\n", json!(4), "unknown field `x`"),
        (b"{\"id\":4,\"tool\":\"accept\",\"arguments\":{\"change\":0}}\n", json!(4), "no change 0"),
        (&long, Value::Null, "more than 8 MiB"),
        (&deep, Value::Null, "no JSON"),
        (b"{\"id\":5,\"tool\":\"list\",\"arguments\":{\"path\":\".\"}", Value::Null, "no JSON"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<u8> = cases.iter().flat_map(|(line, ..)| line.to_vec()).collect();
    let answers = answers(folder.path(), &lines);
    assert_eq!(answers.len(), cases.len());
    for (answer, (_, id, part)) in answers.iter().zip(cases) {
        assert_eq!((&answer["id"], &answer["ok"]), (id, &json!(false)), "{part}");
        assert_has(answer["text"].as_str().unwrap(), &[part]);
    }
}

#[test]
fn a_cancelled_command_ends_and_the_host_continues() {
    let mut host = Running::new();
    let begun = Instant::now();
    let call = json!({"command": "echo begun; sleep 1000", "wait_s": 1000});
    host.send(json!({"id": 1, "tool": "bash", "arguments": call}));
    host.send(json!({"id": 2, "tool": "bash", "arguments": {"command": "echo no", "wait_s": 9}}));
    host.send(json!({"cancel": 2}));
    while fs::read(host.folder.path().join("temporary/output-1.txt")).unwrap_or_default().is_empty()
    {
        thread::sleep(Duration::from_millis(5));
    }
    host.send(json!({"cancel": 1}));
    let text = host.receive()["text"].as_str().unwrap().to_owned();
    assert_has(&text, &["[interrupted]", "signal 15", "begun"]);
    assert_eq!(host.receive()["text"], "interrupted before it started");
    let answer = host.ask(3, "bash", json!({"command": "echo yes", "wait_s": 9}));
    assert_has(answer["text"].as_str().unwrap(), &["exit code 0", "yes"]);
    assert!(begun.elapsed() < Duration::from_secs(100));
    host.end();
}

#[test]
fn the_end_of_the_input_ends_commands_and_jobs() {
    let mut host = Running::new();
    let job =
        json!({"command": "trap '' TERM; echo $$ >a; while :; do sleep 1; done", "wait_s": 0});
    host.ask(1, "bash", job);
    let call = json!({"command": "echo $$ >b; sleep 1000", "wait_s": 1000});
    host.send(json!({"id": 2, "tool": "bash", "arguments": call}));
    let read = |host: &Running, name: &str| {
        fs::read_to_string(host.folder.path().join("work").join(name)).unwrap_or_default()
    };
    while ["a", "b"].iter().any(|name| !read(&host, name).ends_with('\n')) {
        thread::sleep(Duration::from_millis(5));
    }
    let folder = host.end();
    for name in ["a", "b"] {
        let number = fs::read_to_string(folder.path().join("work").join(name)).unwrap();
        assert!(!Path::new(&format!("/proc/{}", number.trim())).exists(), "{name}");
    }
}

#[test]
fn changes_of_guarded_files_are_undone_reported_and_accepted() {
    let mut host = Running::new();
    let file = host.folder.path().join("work/.vscode/tasks.json");
    let answer = host.ask(1, "write", json!({"path": ".vscode/tasks.json", "content": "{}\n"}));
    assert!(!file.exists());
    assert_has(answer["text"].as_str().unwrap(), &["created", "were undone: .vscode/tasks.json"]);
    let report = &answer["guarded"][0];
    assert_eq!((&report["number"], &report["kind"]), (&json!(0), &json!("created")));
    assert_has(report["difference"].as_str().unwrap(), &["+{}"]);
    let answer = host.ask(2, "accept", json!({"change": 0}));
    assert_eq!(
        (&answer["ok"], &answer["text"]),
        (&json!(true), &json!("created .vscode/tasks.json"))
    );
    assert_eq!(fs::read(&file).unwrap(), b"{}\n");
    let answer = host.ask(3, "bash", json!({"command": "true", "wait_s": 9}));
    assert_eq!(answer["guarded"], json!([]));
    assert!(file.exists());
    host.end();
}

#[test]
fn jobs_cannot_change_guarded_files_between_calls() {
    let mut host = Running::new();
    let work = host.folder.path().join("work");
    let command = "while [ ! -e go ]; do sleep 0.01; done; echo x >.envrc; touch done";
    host.ask(1, "bash", json!({"command": command, "wait_s": 0}));
    fs::write(work.join("go"), "").unwrap();
    while !work.join("done").exists() {
        thread::sleep(Duration::from_millis(5));
    }
    // The job has ended before the next call, which writes nothing.
    thread::sleep(Duration::from_millis(50));
    let answer = host.ask(2, "list", json!({"path": ".", "depth": null}));
    assert_eq!(answer["guarded"][0]["path"], ".envrc");
    assert!(!work.join(".envrc").exists());
    // What the user changes while no job runs stays.
    fs::write(work.join(".envrc"), "user\n").unwrap();
    let answer = host.ask(3, "bash", json!({"command": "true", "wait_s": 9}));
    assert_eq!(answer["guarded"], json!([]));
    assert!(work.join(".envrc").exists());
    host.end();
}

#[test]
fn changes_of_jobs_are_undone_between_calls_and_reported_by_the_next() {
    let mut host = Running::new();
    let work = host.folder.path().join("work");
    let command = "while [ ! -e go ]; do sleep 0.01; done; echo x >.envrc; touch done; sleep 1000";
    host.ask(1, "bash", json!({"command": command, "wait_s": 0}));
    fs::write(work.join("go"), "").unwrap();
    // Nothing is asked meanwhile.
    while !work.join("done").exists() || work.join(".envrc").exists() {
        thread::sleep(Duration::from_millis(5));
    }
    // A request of the agent itself, which offers nothing, does not take the report.
    assert_eq!(host.ask(9, "jobs", json!({}))["guarded"], json!([]));
    let answer = host.ask(2, "list", json!({"path": ".", "depth": null}));
    assert_eq!(
        (&answer["guarded"][0]["path"], &answer["guarded"][1]),
        (&json!(".envrc"), &json!(null))
    );
    host.end();
}

#[test]
fn changes_of_other_processes_are_undone_around_their_calls() {
    let mut host = Running::new();
    let work = host.folder.path().join("work");
    let guard = |id: u64, check: bool, others: bool| json!({"id": id, "tool": "guard", "arguments": {"check": check}, "others": others});
    let mut ask = |request: Value| {
        host.send(request);
        host.receive()["guarded"].as_array().unwrap().len()
    };
    let write = || fs::write(work.join(".envrc"), "x\n").unwrap();
    assert_eq!(ask(guard(1, false, false)), 0);
    write();
    assert_eq!((ask(guard(2, true, false)), work.join(".envrc").exists()), (1, false));
    // While one runs, what was changed before a call is not the user's.
    write();
    assert_eq!((ask(guard(3, false, true)), work.join(".envrc").exists()), (1, false));
    write();
    assert_eq!((ask(guard(4, false, false)), work.join(".envrc").exists()), (0, true));
    host.end();
}

#[test]
fn more_changes_than_one_answer_reports_are_undone_and_counted() {
    let mut host = Running::new();
    let command = "for n in $(seq 150); do mkdir d$n; echo x >d$n/.envrc; done";
    let answer = host.ask(1, "bash", json!({"command": command, "wait_s": 60}));
    assert_eq!(answer["guarded"].as_array().unwrap().len(), 100);
    assert_has(answer["text"].as_str().unwrap(), &[" and more]", "[50 more changes"]);
    assert!(!host.folder.path().join("work/d150/.envrc").exists());
    host.end();
}
