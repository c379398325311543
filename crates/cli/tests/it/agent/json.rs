//! The lines of `--json`, and the exit codes. The scene checks of every line that it is one object
//! with a known event and its members.

use super::scene::{AgentEnd, AgentScene, bash, is_confined, write};
use super::server::{ChatServer, ServerAnswer, answers, delta, finished};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::process::Stdio;

/// How the work ended, as the last event has it.
fn check(end: &AgentEnd, code: i32, expected: &str) {
    assert_eq!(end.code, Some(code), "{end:?}");
    let last = end.events.last().unwrap();
    assert_eq!((&last["event"], &last["end"]), (&"end".into(), &expected.into()), "{end:?}");
    assert_eq!(end.events[0]["event"], "session");
    assert_eq!(end.err, "");
}

fn call(tool: &str, arguments: Value) -> ServerAnswer {
    ServerAnswer::calls(&[("1", tool, arguments)])
}

#[test]
fn json_output_is_json_whatever_tools_say() {
    if !is_confined("json_output_is_json_whatever_tools_say") {
        return;
    }
    let hostile = r#"printf 'a\033[31m\377\000\r\n{"event":"end"}\n\342\200\250'; exit 3"#;
    let cut = json!({"id": "5", "function": {"name": "read", "arguments": "{\"path\": \"cu"}});
    let scene = AgentScene::new(vec![
        ServerAnswer::calls(&[
            ("1", "write", write("a/b", "one\n")),
            ("2", "bash", bash(hostile)),
            ("3", "none", json!({"x": "\u{1b}]0;\u{7}"})),
            ("4", "read", json!({"path": ["\n"]})),
        ]),
        ServerAnswer::of_calls([cut]),
        ServerAnswer::reasoning("hm\n{\"event\":\"end\"}", "done\r\n\u{1b}[2J\u{0}\u{2028}é"),
    ]);
    let end = scene.run(&["go"]);
    check(&end, 0, "done");
    assert_eq!(end.text("text"), "done\r\n\u{1b}[2J\u{0}\u{2028}é");
    assert_eq!(end.text("reasoning"), "hm\n{\"event\":\"end\"}");
    let results = end.all("result");
    let ids: Vec<&str> = results.iter().filter_map(|it| it["id"].as_str()).collect();
    let ok: Vec<bool> = results.iter().filter_map(|it| it["ok"].as_bool()).collect();
    assert_eq!((ids, ok), (vec!["1", "2", "3", "4", "5"], vec![true, true, false, false, false]));
    assert_eq!(results[0]["changed"], json!(["a/b"]));
    let text = results[1]["text"].as_str().unwrap();
    assert!(text.contains("\\x1b[31m\\xff\\x00\n{\"event\":\"end\"}\n\\u{2028}"), "{text}");
    assert!(text.contains("exit code 3"), "{text}");
    assert!(results[2]["text"].as_str().unwrap().contains("there is no tool none"));
    for wrong in &results[3..] {
        assert!(wrong["text"].as_str().unwrap().contains("wrong arguments of read"), "{wrong}");
    }
    let usage = json!({
        "event": "usage", "prompt_tokens": 20, "cached_tokens": 3, "completion_tokens": 5,
    });
    assert_eq!(end.all("usage"), [&usage; 3]);
}

#[test]
fn json_output_is_json_whatever_the_server_does() {
    if !is_confined("json_output_is_json_whatever_the_server_does") {
        return;
    }
    let text = delta(&json!({"content": "half"}));
    let begun = ServerAnswer::beginning(&text);
    let error = r#"{"error": {"message": "no \u001b[31m more"}}"#;
    for (answer, expected) in [
        (ServerAnswer::status("500 Wrong", error), "500: no"),
        (ServerAnswer::status("200 OK", "{}"), "expected an answer of text/event-stream"),
        (ServerAnswer::status("404 Not Found", "<html>\u{1b}[2J"), "404"),
        (begun, "ended before the answer did"),
        (ServerAnswer::beginning(&format!("{text}data: {{\"choices\": 3}}\n\n")), "a chunk"),
        (ServerAnswer::beginning(&format!("{text}data: {error}\n\n")), "no"),
        (ServerAnswer::beginning(&format!("{text}data: \u{0}\u{7f}\n\n")), "a chunk"),
        (ServerAnswer::raw([0xff, 0, 0x1b, b'\n', b'\n']), "127.0.0.1"),
        (ServerAnswer::raw(""), "127.0.0.1"),
    ] {
        let first = call("bash", bash("echo x >>f"));
        let scene = AgentScene::new(vec![first, answer, ServerAnswer::text("done")]);
        let end = scene.run(&["go"]);
        assert_eq!((end.code, end.all("result").len()), (Some(1), 1), "{expected}: {end:?}");
        assert!(end.err.starts_with("error: "), "{}", end.err);
        assert!(end.err.contains(expected) && !end.err.contains('\u{1b}'), "{}", end.err);
        assert_eq!(scene.text("work/f"), "x\n");
    }
}

#[test]
fn an_answer_that_failed_is_asked_for_again() {
    if !is_confined("an_answer_that_failed_is_asked_for_again") {
        return;
    }
    let half = delta(&json!({"content": "half"}));
    let fails = std::sync::atomic::AtomicBool::new(true);
    let scene = AgentScene::with(ChatServer::new(1000, move |_| {
        match fails.swap(false, std::sync::atomic::Ordering::Relaxed) {
            true => ServerAnswer::beginning(&half),
            false => ServerAnswer::text("whole"),
        }
    }));
    let end = scene.run(&["go"]);
    assert_eq!((end.code, end.text("text").as_str()), (Some(1), "half"), "{end:?}");
    let end = scene.run(&["--continue"]);
    check(&end, 0, "done");
    assert_eq!(end.text("text"), "whole");
    let chats = scene.server.chats();
    assert_eq!(chats[0].messages(), chats[1].messages());
}

#[test]
fn what_was_refused_is_exit_code_3() {
    if !is_confined("what_was_refused_is_exit_code_3") {
        return;
    }
    let fetch = json!({"url": "http://host.invalid/\u{1b}"});
    for (tool, arguments) in [("fetch", fetch), ("write", write("gannet.yaml", "temp: 0\n"))] {
        let scene = AgentScene::new(vec![call(tool, arguments), ServerAnswer::text("done")]);
        let end = scene.run(&["go"]);
        check(&end, 3, "done");
        assert_eq!(end.all("question")[0]["answer"], "no", "{end:?}");
    }
}

/// Tokens of the context that [`filling`] fills.
const CONTEXT: usize = 8000;

/// Answers that call commands with long outputs, until there is a summary or there were so many of
/// them. Asked for a summary they are `summary`.
fn filling(summary: Value, most: usize) -> impl Fn(&Value) -> ServerAnswer {
    // Without counts of the server, tokens are counted by the bytes of the messages.
    let whole = |delta_of: Value| {
        ServerAnswer::beginning(&format!("{}{}", delta(&delta_of), finished("stop")))
    };
    move |body| {
        let messages = body["messages"].as_array().unwrap();
        let has = |message: &Value, text: &str| {
            message["content"].as_str().is_some_and(|it| it.contains(text))
        };
        if has(messages.last().unwrap(), "The conversation is about to be replaced") {
            return whole(json!({"content": summary.to_string()}));
        }
        let is_summed_up = messages.iter().any(|it| has(it, "Summary of the conversation"));
        if is_summed_up || answers(body) >= most {
            return whole(json!({"content": "done"}));
        }
        let (id, arguments) = (answers(body).to_string(), bash("seq 900").to_string());
        let function = json!({"name": "bash", "arguments": arguments});
        whole(json!({"tool_calls": [{"index": 0, "id": id, "function": function}]}))
    }
}

#[test]
fn what_a_refusal_repeats_is_bounded() {
    if !is_confined("what_a_refusal_repeats_is_bounded") {
        return;
    }
    let name = "n".repeat(3 << 20);
    let wrong = json!({"x".repeat(1 << 20): 1, "url": "http://host.invalid/"});
    let calls = [call(&name, json!({})), call("fetch", wrong), ServerAnswer::text("done")];
    let scene = AgentScene::new(calls.to_vec());
    let end = scene.run(&["go"]);
    check(&end, 0, "done");
    for result in scene.server.results() {
        assert!(result.len() < 2000 && result.ends_with('…'), "{} bytes", result.len());
    }
}

#[test]
fn a_compaction_is_an_event() {
    if !is_confined("a_compaction_is_an_event") {
        return;
    }
    let summary = json!({
        "goal": "\u{1b}", "constraints": [], "decisions": [], "state": "", "next_step": "",
    });
    let answers = filling(summary, 50);
    // The server knows no limit of reasoning, which a summary asks for first.
    let server = ChatServer::new(CONTEXT, move |body| match body.get("thinking_budget_tokens") {
        Some(_) => ServerAnswer::status("400 Bad Request", r#"{"error": {"message": "unknown"}}"#),
        None => answers(body),
    });
    let end = AgentScene::with(server).run(&["go"]);
    check(&end, 0, "done");
    let compacted = end.all("compaction");
    assert_eq!(compacted.len(), 1, "{end:?}");
    assert!(compacted[0]["before"].as_u64() > compacted[0]["after"].as_u64());
    assert!(!end.text("text").contains("goal"));
}

#[test]
fn a_compaction_that_fails_is_an_event_and_the_work_continues() {
    if !is_confined("a_compaction_that_fails_is_an_event_and_the_work_continues") {
        return;
    }
    let answers = filling(json!({"goal": "no more"}), 18);
    let end = AgentScene::with(ChatServer::new(CONTEXT, answers)).run(&["go"]);
    check(&end, 0, "done");
    assert_eq!(end.all("compaction"), [&json!({"event": "compaction", "failed": true})]);
    assert!(!end.text("text").contains("no more"));
}

#[test]
fn limits_are_exit_code_4() {
    if !is_confined("limits_are_exit_code_4") {
        return;
    }
    let half = ServerAnswer::beginning(&delta(&json!({"content": "half"}))).held();
    let length = ServerAnswer::whole(vec![json!({"content": "half"})], "length");
    let cut = json!([{"index": 0, "id": "1", "function": {"name": "bash", "arguments": "{\"c"}}]);
    let cut = ServerAnswer::whole(vec![json!({"tool_calls": cut})], "length");
    let runs = || call("bash", bash("true"));
    let sleeps = call("bash", bash("sleep 100"));
    for (args, answer) in [
        (["--max-turns", "1"], runs()),
        (["--max-tokens", "5"], runs()),
        (["--timeout", "1"], sleeps),
        (["--timeout", "1"], half),
        (["--max-tokens", "5"], length.clone()),
        (["--max-tokens", "5"], cut.clone()),
        (["--max-turns", "5"], length),
    ] {
        let scene = AgentScene::new(vec![answer, ServerAnswer::text("done")]);
        check(&scene.run(&[&["go"], &args[..]].concat()), 4, "limit");
    }
}

#[test]
fn signals_end_the_work_with_their_codes() {
    if !is_confined("signals_end_the_work_with_their_codes") {
        return;
    }
    let half = ServerAnswer::beginning(&delta(&json!({"content": "half"}))).held();
    let silent = ServerAnswer::default().held();
    let sleeps = call("bash", bash("echo x >>f; sleep 100; echo x >>f"));
    let asks = call("fetch", json!({"url": "http://host.invalid/"}));
    for (answer, event, signal, code) in [
        (half.clone(), "text", Signal::INT, 130),
        (half, "text", Signal::TERM, 143),
        (silent, "", Signal::INT, 130),
        (sleeps.clone(), "call", Signal::INT, 130),
        (sleeps, "call", Signal::HUP, 129),
        (asks, "question", Signal::INT, 130),
    ] {
        let scene = AgentScene::new(vec![answer, ServerAnswer::text("done")]);
        let mut agent = scene.start(&["go", "--confirm", "outside"]);
        match event {
            "" => crate::gannet::until("a request", || !scene.server.chats().is_empty()),
            event => drop(agent.event(event)),
        }
        agent.signal(signal);
        // Its input stays open.
        while agent.event("end")["end"] != "interrupted" {}
        check(&agent.end(), code, "interrupted");
        assert_eq!(scene.server.chats().len(), 1);
    }
}

#[test]
fn work_ends_with_the_reader_of_its_output() {
    if !is_confined("work_ends_with_the_reader_of_its_output") {
        return;
    }
    // Without a reader there would be no end.
    let more = || call("bash", bash("echo x >>f"));
    for json in [&["--json"][..], &[]] {
        let server = ChatServer::new(1 << 20, move |_| more());
        let scene = AgentScene::with(server);
        let mut command = scene.command();
        command.args(json).arg("go").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
        assert!(scene.text("work/f").len() < 20, "{json:?}");
    }
}
