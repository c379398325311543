//! Sessions that continue, whatever ended the process before.

use super::scene::{AgentEnd, AgentScene, bash, is_confined, tree, write};
use super::server::{ChatServer, ReceivedRequest, ServerAnswer, answers, delta};
use crate::gannet::{Ended, check_error, command, until};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const CALLS: usize = 5;

/// Answers of which each call adds a line to a file.
fn script() -> Vec<ServerAnswer> {
    let call = |id: &'static str| (id, "bash", bash(&format!("echo {id} >>log")));
    vec![
        ServerAnswer::calls(&[call("a"), call("b")]),
        ServerAnswer::calls(&[call("c")]),
        ServerAnswer::calls(&[call("d"), call("e")]),
        ServerAnswer::reasoning("hm", "done"),
    ]
}

fn log(scene: &AgentScene, name: &str) -> PathBuf {
    scene.path("state/agent").join(format!("{name}.jsonl"))
}

/// Nothing but the error is said.
fn check_refused(end: &AgentEnd) {
    assert_eq!((end.code, end.events.len()), (Some(1), 1), "{end:?}");
    assert_eq!(end.events[0]["end"], "error");
}

/// Whether the work is done, no call has run twice, and each conversation that the server was sent
/// continues the one before.
fn check(scene: &AgentScene, end: &AgentEnd) {
    assert_eq!(
        (end.code, &end.events.last().unwrap()["end"]),
        (Some(0), &json!("done")),
        "{end:?}"
    );
    let log = scene.text("work/log");
    let mut lines: Vec<&str> = log.lines().collect();
    let count = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), count, "{log}");
    let all: Vec<_> = scene.server.chats().iter().map(ReceivedRequest::messages).collect();
    for two in all.windows(2) {
        assert!(two[1].starts_with(&two[0]), "{two:?}");
    }
    let last = all.last().unwrap();
    let results: Vec<&str> = last.iter().filter_map(|it| it["tool_call_id"].as_str()).collect();
    assert_eq!(results, ["a", "b", "c", "d", "e"]);
    let unknown = "interrupted, it is not known how far it came";
    let unknown = last.iter().filter(|it| it["content"] == unknown).count();
    assert!(CALLS - count <= unknown, "{log} {last:?}");
}

/// Continues the session `s`, or begins it: whether its request was written.
fn args(scene: &AgentScene) -> Vec<&'static str> {
    let log = fs::read_to_string(log(scene, "s")).unwrap_or_default();
    let has_request = log.lines().any(|line| line.contains("\"role\":\"user\""));
    let prompt = if has_request { vec![] } else { vec!["go"] };
    [vec!["--session", "s"], prompt].concat()
}

#[test]
fn a_session_killed_at_any_event_continues_and_no_call_runs_twice() {
    if !is_confined("a_session_killed_at_any_event_continues_and_no_call_runs_twice") {
        return;
    }
    let mut kills = 0;
    let mut kill = |scene: &AgentScene, events: usize| {
        let mut agent = scene.start(&args(scene));
        for _ in 0..events {
            if agent.any_event().is_none() {
                return false;
            }
        }
        agent.kill();
        kills += 1;
        true
    };
    for events in 1.. {
        let scene = AgentScene::new(script());
        if !kill(&scene, events) {
            assert!(events > 14, "{events}");
            break;
        }
        // Again, now and then.
        if events % 3 == 0 {
            kill(&scene, 2);
        }
        check(&scene, &scene.run(&args(&scene)));
    }
    assert!(kills > 20, "{kills}");
}

#[test]
fn a_session_killed_while_an_answer_comes_continues() {
    if !is_confined("a_session_killed_while_an_answer_comes_continues") {
        return;
    }
    for held in 0..script().len() {
        let begun = Arc::new(AtomicUsize::new(0));
        let half = delta(&json!({"reasoning_content": "half"}));
        let call = json!([{"index": 0, "id": "x", "function": {
            "name": "bash", "arguments": "{\"command\": \"echo x >>log\"",
        }}]);
        let call = delta(&json!({"tool_calls": call}));
        let parts = [String::new(), half.clone(), format!("{half}{call}")];
        let count = Arc::clone(&begun);
        let scene = AgentScene::with(ChatServer::new(100_000, move |body| {
            let number = answers(body);
            if number == held
                && let Some(part) = parts.get(count.fetch_add(1, Ordering::SeqCst))
            {
                return ServerAnswer::beginning(part).held();
            }
            script()[number].clone()
        }));
        for kills in 1..=3 {
            let mut agent = scene.start(&args(&scene));
            until("the server answers", || begun.load(Ordering::SeqCst) == kills);
            if kills > 1 {
                agent.event("reasoning");
            }
            agent.kill();
        }
        check(&scene, &scene.run(&args(&scene)));
        assert!(!scene.text("work/log").contains('x'));
    }
}

#[test]
fn a_session_killed_within_a_call_does_not_repeat_it() {
    if !is_confined("a_session_killed_within_a_call_does_not_repeat_it") {
        return;
    }
    let command = bash("echo x >>log; sleep 1000");
    let calls = [("1", "bash", command), ("2", "bash", bash("echo y >>log"))];
    let scene = AgentScene::new(vec![ServerAnswer::calls(&calls), ServerAnswer::text("done")]);
    let agent = scene.start(&["go"]);
    until("the call has begun", || scene.text("work/log") == "x\n");
    agent.kill();
    let end = scene.run(&["--continue"]);
    assert_eq!((end.code, scene.text("work/log").as_str()), (Some(0), "x\ny\n"), "{end:?}");
    let results = scene.server.results();
    assert_eq!(results[0], "interrupted, it is not known how far it came");
    assert!(results[1].contains("exit code 0"), "{results:?}");
}

#[test]
fn calls_whose_ids_repeat_run_once_each() {
    if !is_confined("calls_whose_ids_repeat_run_once_each") {
        return;
    }
    let call = |id: &Value, command: &str| {
        let arguments = bash(command).to_string();
        json!({"id": id, "function": {"name": "bash", "arguments": arguments}})
    };
    for id in [json!("0"), json!(""), Value::Null] {
        let scene = AgentScene::new(vec![
            ServerAnswer::of_calls([call(&id, "echo a >>log; sleep 1000")]),
            ServerAnswer::of_calls([call(&id, "echo b >>log")]),
            ServerAnswer::of_calls([call(&id, "echo c >>log"), call(&id, "echo d >>log")]),
            ServerAnswer::text("done"),
        ]);
        let agent = scene.start(&["go"]);
        until("the call has begun", || scene.text("work/log") == "a\n");
        agent.kill();
        let end = scene.run(&["--continue"]);
        assert_eq!((end.code, scene.text("work/log").as_str()), (Some(0), "a\nb\nc\nd\n"), "{id}");
        let messages = scene.server.chats().last().unwrap().messages();
        let ids = messages.iter().flat_map(|it| it["tool_calls"].as_array().into_iter().flatten());
        let ids: Vec<&str> = ids.filter_map(|it| it["id"].as_str()).collect();
        let results = messages.iter().filter_map(|it| it["tool_call_id"].as_str());
        assert_eq!(results.collect::<Vec<_>>(), ids);
        assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{ids:?}");
    }
}

#[test]
fn sessions_have_names_and_copies() {
    if !is_confined("sessions_have_names_and_copies") {
        return;
    }
    let say = ["one", "two", "three"].map(ServerAnswer::text).to_vec();
    let scene = AgentScene::new(say);
    let text = |args: &[&str]| {
        let end = scene.run(args);
        assert_eq!(end.code, Some(0), "{end:?}");
        (end.events[0]["name"].as_str().unwrap().to_owned(), end.text("text"))
    };
    assert_eq!(text(&["a", "--session", "first"]), ("first".into(), "one".into()));
    assert_eq!(text(&["b", "--session", "first"]), ("first".into(), "two".into()));
    let before = fs::read(log(&scene, "first")).unwrap();
    let forked = ["c", "--session", "first", "--fork", "second"];
    assert_eq!(text(&forked), ("second".into(), "three".into()));
    assert_eq!(fs::read(log(&scene, "first")).unwrap(), before);
    assert!(fs::read(log(&scene, "second")).unwrap().starts_with(&before));
    let again = scene.run(&forked);
    check_refused(&again);
    assert!(again.err.contains("there is a session second already"), "{}", again.err);
    // A session is that of the user alone.
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &log(&scene, "second").metadata().unwrap().permissions(),
    );
    assert_eq!(mode & 0o77, 0);
    let messages = scene.server.chats().last().unwrap().messages();
    let users = messages.iter().filter(|it| it["role"] == "user");
    let last: Vec<&str> =
        users.filter_map(|it| it["content"].as_str()?.split('\n').next_back()).collect();
    assert_eq!(last, ["a", "b", "c"]);
}

#[test]
fn the_last_session_of_the_folder_continues() {
    if !is_confined("the_last_session_of_the_folder_continues") {
        return;
    }
    let scene = AgentScene::new(["one", "two"].map(ServerAnswer::text).to_vec());
    for name in ["a", "b", "c"] {
        assert_eq!(scene.run(&["x", "--session", name]).code, Some(0));
    }
    let log = log(&scene, "b");
    let file = fs::File::options().append(true).open(log).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    file.set_modified(later).unwrap();
    let end = scene.run(&["y", "--continue"]);
    assert_eq!((&end.events[0]["name"], end.text("text").as_str()), (&json!("b"), "two"));
    // One of another folder is not taken for it.
    fs::create_dir(scene.path("other")).unwrap();
    for (args, expected) in
        [(&["--continue"][..], "no session of"), (&["--session", "a"], "expected the folder")]
    {
        let mut command = command();
        command.args(["agent", "y", "--url", &scene.server.url, "-C"]).arg(scene.path("other"));
        command.args(args).arg("--state-dir").arg(scene.path("state"));
        check_error(&Ended::from(command.output().unwrap()), expected);
    }
}

#[test]
fn without_a_session_nothing_is_left() {
    if !is_confined("without_a_session_nothing_is_left") {
        return;
    }
    let scene = AgentScene::new(script());
    let before = [tree(&scene.path("state")), tree(&scene.path("home"))];
    let end = scene.run(&["go", "--no-session"]);
    check(&scene, &end);
    assert_eq!(end.events[0]["name"], Value::Null);
    assert_eq!([tree(&scene.path("state")), tree(&scene.path("home"))], before);
    assert!(tree(&scene.path("tmp")).is_empty());
}

#[test]
fn tools_cannot_write_sessions() {
    let scene = AgentScene::new(script());
    std::os::unix::fs::symlink(scene.path("work"), scene.path("link")).unwrap();
    for folder in ["work", "work/a/b", "link/a"] {
        let mut command = command();
        command.args(["agent", "go", "--url", &scene.server.url, "-C"]).arg(scene.path("work"));
        command.arg("--state-dir").arg(scene.path(folder));
        let ended = Ended::from(command.output().unwrap());
        check_error(&ended, "--state-dir: expected a folder outside of");
    }
    assert!(tree(&scene.path("work")).is_empty());
}

#[test]
fn one_process_has_a_session_and_several_have_a_folder() {
    if !is_confined("one_process_has_a_session_and_several_have_a_folder") {
        return;
    }
    let held = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&held);
    let scene = AgentScene::with(ChatServer::new(100_000, move |_| {
        match count.fetch_add(1, Ordering::SeqCst) {
            0 => ServerAnswer::beginning("").held(),
            _ => ServerAnswer::text("done"),
        }
    }));
    let first = scene.start(&["go", "--session", "s"]);
    until("the first waits", || held.load(Ordering::SeqCst) == 1);
    for args in [&["x", "--session", "s"][..], &["x", "--continue"]] {
        let end = scene.run(args);
        check_refused(&end);
        assert!(end.err.contains("session s"), "{}", end.err);
    }
    // Others begin their own, also at the same moment.
    let others: Vec<_> = (0..3).map(|_| scene.start(&["go"])).collect();
    let mut names: Vec<_> = others
        .into_iter()
        .map(|other| {
            let end = other.end();
            assert_eq!(end.code, Some(0), "{end:?}");
            end.events[0]["name"].as_str().unwrap().to_owned()
        })
        .collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 3, "{names:?}");
    first.kill();
    // Its end frees the session.
    assert_eq!(scene.run(&["--session", "s"]).code, Some(0));
}

#[test]
fn a_damaged_log_is_named_or_continues() {
    if !is_confined("a_damaged_log_is_named_or_continues") {
        return;
    }
    let scene = AgentScene::new(script());
    check(&scene, &scene.run(&["go", "--session", "s"]));
    let whole = fs::read(log(&scene, "s")).unwrap();
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let garbage: &[u8] = b"\x00\xff{\n";
    let mut other: Value = serde_json::from_slice(lines[0]).unwrap();
    other["gannet_agent"] = 2.into();
    let other = format!("{other}\n");
    let with = |line: usize, bytes: &[u8]| {
        [lines[..line].concat(), bytes.to_vec(), lines[line + 1..].concat()].concat()
    };
    for (content, expected) in [
        (with(3, garbage), "s.jsonl, line 4: expected a record"),
        (with(0, garbage), "s.jsonl, line 1: expected a record"),
        (with(0, b""), "s.jsonl, line 1: expected"),
        (with(0, other.as_bytes()), "line 1: expected version 1, found 2"),
        (b"\x7fELF\n\xff\xff\n\x00".to_vec(), "s.jsonl, line 1: expected a record"),
    ] {
        fs::write(log(&scene, "s"), &content).unwrap();
        let end = scene.run(&["go", "--session", "s"]);
        check_refused(&end);
        assert!(end.err.contains(expected), "{expected}: {}", end.err);
        assert_eq!(fs::read(log(&scene, "s")).unwrap(), content);
    }
    // A last line that was cut, or never reached the disk, is dropped.
    let last = lines.len() - 1;
    for content in [whole[..whole.len() - 9].to_vec(), with(last, garbage)] {
        fs::write(log(&scene, "s"), content).unwrap();
        check(&scene, &scene.run(&["--session", "s"]));
        assert_eq!(fs::read(log(&scene, "s")).unwrap(), whole);
    }
    fs::write(log(&scene, "s"), "").unwrap();
    assert_eq!(scene.run(&["go", "--session", "s"]).code, Some(0));
}

#[test]
fn sessions_are_listed_shown_renamed_and_removed() {
    if !is_confined("sessions_are_listed_shown_renamed_and_removed") {
        return;
    }
    let written = ServerAnswer::calls(&[("1", "write", write("a", "b\n"))]);
    let scene = AgentScene::new(vec![written, ServerAnswer::text("I have\nwritten it.")]);
    assert_eq!(scene.run(&["write  it", "--session", "s"]).code, Some(0));
    let state = scene.path("state").display().to_string();
    let sessions = |args: &[&str]| {
        crate::gannet::run(&[&["sessions", "--agent", "--state-dir", &state], args].concat())
    };
    let said = |args: &[&str]| {
        let end = sessions(args);
        assert_eq!(end.code, Some(0), "{args:?}: {}", end.err);
        end.out
    };
    let listed: Value = serde_json::from_str(&said(&["list", "--json"])).unwrap();
    let [one] = &listed.as_array().unwrap()[..] else { panic!("{listed}") };
    assert_eq!((&one["name"], &one["title"]), (&"s".into(), &"write it".into()));
    assert_eq!((&one["requests"], &one["model"]), (&1.into(), &"scripted".into()));
    let line = said(&["list"]);
    assert!(line.starts_with("s  (1 request, ") && line.ends_with("  write it\n"), "{line}");
    let shown = said(&["show", "s"]);
    assert!(shown.starts_with("# session s\n") && shown.ends_with("I have\nwritten it.\n"));
    let whole = scene.text("state/agent/s.jsonl");
    assert_eq!(said(&["export", "s"]), whole);
    assert_eq!(said(&["rename", "s", "t"]), "");
    assert_eq!(scene.text("state/agent/t.jsonl"), whole);
    assert!(sessions(&["show", "s"]).err.contains("no such session"));
    assert!(sessions(&["import", "x"]).err.contains("are not imported"));
    // Without the flag, sessions are those of chats.
    let chats = crate::gannet::run(&["sessions", "--state-dir", &state, "list"]);
    assert_eq!(chats.out, "no sessions\n");
    said(&["remove", "t"]);
    assert_eq!(said(&["list"]), "no sessions\n");
    let left = fs::read_dir(scene.path("state/agent")).unwrap().flatten();
    assert_eq!(left.map(|entry| entry.file_name()).collect::<Vec<_>>(), [""; 0]);
}
