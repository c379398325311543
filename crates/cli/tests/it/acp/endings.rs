//! How the agent ends: with its input, its output, or a signal.

use super::editor::{Editor, Place, ended};
use super::model::{ModelServer, Step, call, text};
use crate::gannet::until;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout};

/// An editor whose agent runs a command that has a job beside it, and their ids.
fn at_work(place: &Place) -> (Editor, [String; 2]) {
    let model = ModelServer::of(|| {
        let command = "sleep 1001 & echo $! >job; echo $$ >command; sleep 1002";
        vec![call("1", "bash", &json!({"command": command, "wait_s": 900})), text("done")]
    });
    let (mut editor, session) = place.session(&model.url, &[]);
    editor.prompt(&session, "work");
    until("the command", || place.read("command").ends_with('\n'));
    let id = |name| format!("/proc/{}", place.read(name).trim());
    let ids = [id("job"), id("command")];
    assert!(ids.iter().all(|id| Path::new(id).exists()), "{ids:?}");
    (editor, ids)
}

fn check_gone(ids: &[String]) {
    for id in ids {
        until(id, || !Path::new(id).exists());
    }
}

#[test]
fn the_end_of_the_input_ends_all_work() {
    let place = Place::new();
    let (editor, ids) = at_work(&place);
    assert_eq!(editor.end().code(), Some(0));
    check_gone(&ids);
    // What was written is a session.
    assert!(place.state().iter().any(|name| name.ends_with(".jsonl")));
}

#[test]
fn ctrl_c_ends_all_work() {
    let place = Place::new();
    let (mut editor, ids) = at_work(&place);
    let pid = rustix::process::Pid::from_child(&editor.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(editor.ended().code(), Some(130));
    check_gone(&ids);
}

/// An agent that works on a prompt, and its output, of which nothing after is read.
fn unread(place: &Place, model: &ModelServer) -> (Child, BufReader<ChildStdout>) {
    let mut child = place.agent(&model.url, &[]);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let input = child.stdin.as_mut().unwrap();
    let mut send = |id: u64, method: &str, params: Value| {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(input, "{message}").unwrap();
    };
    send(1, "initialize", json!({"protocolVersion": 1}));
    send(2, "session/new", json!({"cwd": place.work(), "mcpServers": []}));
    let mut line = String::new();
    while !line.contains("sessionId") {
        line.clear();
        output.read_line(&mut line).unwrap();
    }
    let opened: Value = serde_json::from_str(&line).unwrap();
    let prompt = json!([{"type": "text", "text": "x"}]);
    let session = &opened["result"]["sessionId"];
    send(3, "session/prompt", json!({"sessionId": session, "prompt": prompt}));
    model.request();
    (child, output)
}

#[test]
fn a_client_that_does_not_read_ends_the_agent_with_its_input() {
    let place = Place::new();
    let model = ModelServer::of(|| {
        // More than the pipe and what waits for it hold.
        let part = "x".repeat(1 << 10);
        let parts = (0..20_000).map(|_| Step::Delta(json!({"content": part})));
        vec![parts.chain([Step::Finish("stop")]).collect()]
    });
    let (mut child, output) = unread(&place, &model);
    drop(child.stdin.take());
    assert_eq!(ended(&mut child).code(), Some(0));
    drop(output);
}

#[test]
fn a_closed_output_ends_the_agent() {
    let place = Place::new();
    let model = ModelServer::of(|| {
        let parts = (0..100).map(|_| Step::Delta(json!({"content": "a"})));
        vec![parts.chain([Step::Stay]).collect()]
    });
    let (mut child, output) = unread(&place, &model);
    drop(output);
    assert_eq!(ended(&mut child).code(), Some(0));
}
