//! Conversations on a pseudo-terminal, with a scripted server.

#[path = "../../../src/commands/agent/terminal/tests/pty.rs"]
mod pty;

use super::scene::{AgentScene, RunningAgent, bash, is_confined, write};
use super::server::{ChatServer, ServerAnswer, delta, finished};
use crate::gannet::{command, tiny, until};
use pty::PtyRun;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;

/// A conversation that has begun.
fn start(scene: &AgentScene, args: &[&str]) -> PtyRun {
    let mut command = scene.command();
    command.args(args).env("TERM", "xterm");
    PtyRun::start(command, "/help lists the commands", true)
}

/// A conversation, a command or a message of it, and what the terminal shows then.
fn say(run: &mut PtyRun, text: &str, expected: &str) {
    run.write(text.as_bytes());
    run.write(b"\r");
    run.wait_for(expected);
}

/// An answer that begins with `text` and does not end.
fn endless(text: &str) -> ServerAnswer {
    ServerAnswer::beginning(&delta(&json!({"content": text}))).held()
}

/// The last message of the user in the last request.
fn last_message(scene: &AgentScene) -> String {
    let messages = scene.server.chats().last().unwrap().messages();
    let last = messages.iter().rfind(|message| message["role"] == "user");
    last.unwrap()["content"].as_str().unwrap().to_owned()
}

#[test]
fn enter_steers_and_alt_enter_queues() {
    if !is_confined("enter_steers_and_alt_enter_queues") {
        return;
    }
    let waits = bash("while [ ! -e go ]; do sleep 0.01; done");
    let scene = AgentScene::new(vec![
        ServerAnswer::calls(&[("1", "bash", waits), ("2", "write", write("a.txt", "no"))]),
        ServerAnswer::text("as you say"),
        ServerAnswer::text("the third answer"),
    ]);
    let mut run = start(&scene, &[]);
    say(&mut run, "begin", "• bash");
    say(&mut run, "stop that", "next");
    run.write(b"and later\x1b\r");
    run.wait_for("later: and later");
    scene.put("work/go", "");
    run.wait_for("the third answer");
    let chats = scene.server.chats();
    let contents = |number: usize| -> Vec<Value> {
        chats[number].messages().iter().map(|message| message["content"].clone()).collect()
    };
    assert_eq!(contents(1)[4..], ["skipped: the user wrote", "stop that"]);
    assert_eq!(contents(2)[6..], ["as you say", "and later"]);
    assert_eq!((chats.len(), scene.text("work/a.txt").as_str()), (3, "absent"));
    run.write(b"\x04");
    assert_eq!(run.end().code(), Some(0));
}

#[test]
fn ctrl_c_stops_the_answer_and_twice_the_program() {
    if !is_confined("ctrl_c_stops_the_answer_and_twice_the_program") {
        return;
    }
    let script = vec![endless("half"), ServerAnswer::text("the whole"), endless("endless")];
    let scene = AgentScene::new(script);
    let mut run = start(&scene, &[]);
    say(&mut run, "begin", "half");
    run.write(b"\x03");
    run.wait_for("interrupted");
    say(&mut run, "again", "the whole");
    let messages = scene.server.chats()[1].messages();
    let contents: Vec<&Value> = messages.iter().map(|message| &message["content"]).collect();
    assert_eq!(contents[2..], ["half", "again"]);
    say(&mut run, "more", "endless");
    run.write(b"\x03\x03");
    assert_eq!(run.end().code(), Some(0));
}

#[test]
fn raw_mode_ends_on_every_path_of_a_conversation() {
    if !is_confined("raw_mode_ends_on_every_path_of_a_conversation") {
        return;
    }
    let scene = AgentScene::new(vec![endless("half")]);
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        for is_working in [false, true] {
            let mut run = start(&scene, &["--no-session"]);
            if is_working {
                say(&mut run, "begin", "half");
            }
            run.kill(signal);
            assert_eq!(run.end().code(), Some(code), "{signal:?}, {is_working}");
        }
    }
    for keys in ["\x03\x03", "\x04", "/exit\r", "/quit\r"] {
        let mut run = start(&scene, &["--no-session"]);
        run.write(keys.as_bytes());
        assert_eq!(run.end().code(), Some(0), "{keys:?}");
    }
    // The server is gone: what fails is said, and the conversation goes on.
    let broken = AgentScene::new(Vec::new());
    let mut run = start(&broken, &["--no-session"]);
    say(&mut run, "begin", "error: ");
    run.write(b"\x04");
    assert_eq!(run.end().code(), Some(0));
    let mut run = start(&scene, &["--no-session"]);
    run.close();
    run.wait();
    let left = scene.path("tmp").read_dir().unwrap().count();
    assert_eq!(left, 0, "the folders of the tools are removed");
}

#[test]
fn a_request_is_taken_back() {
    if !is_confined("a_request_is_taken_back") {
        return;
    }
    let scene = AgentScene::new(vec![
        ServerAnswer::calls(&[("1", "write", write("a.txt", "one"))]),
        ServerAnswer::text("it is written"),
    ]);
    let mut run = start(&scene, &[]);
    say(&mut run, "/undo", "nothing to undo");
    for _ in 0..2 {
        say(&mut run, "write it", "it is written");
        assert_eq!(scene.text("work/a.txt"), "one");
        say(&mut run, "/sandbox read-only", "the sandbox is read-only");
        say(&mut run, "/undo", "the tools cannot write");
        say(&mut run, "/sandbox workspace", "the sandbox is workspace");
        say(&mut run, "/undo", "removed a.txt");
        assert_eq!(scene.text("work/a.txt"), "absent");
        say(&mut run, "/history", "no request yet");
    }
    let chats = scene.server.chats();
    assert_eq!(chats[0].messages(), chats[2].messages());
    run.write(b"\x04");
    assert_eq!(run.end().code(), Some(0));
}

#[test]
fn a_plan_writes_nothing() {
    if !is_confined("a_plan_writes_nothing") {
        return;
    }
    let both = |text: &str| {
        ServerAnswer::calls(&[
            ("1", "write", write("a.txt", text)),
            ("2", "bash", bash(&format!("echo {text} >b.txt"))),
        ])
    };
    let script = |first: &str| {
        vec![both(first), ServerAnswer::text("one."), both("two"), ServerAnswer::text("two.")]
    };
    for sandbox in ["workspace", "off"] {
        let scene = AgentScene::new(script("plan"));
        let mut run = start(&scene, &["--sandbox", sandbox, "--confirm", "allow"]);
        say(&mut run, "/plan", "nothing is written");
        say(&mut run, "begin", "one.");
        let files = || [scene.text("work/a.txt"), scene.text("work/b.txt")];
        assert_eq!(files(), ["absent", "absent"], "{sandbox}");
        assert!(last_message(&scene).contains("[From here on, plan"), "{sandbox}");
        say(&mut run, "/plan", "the plan has ended");
        say(&mut run, "go on", "two.");
        assert_eq!(files(), ["two", "two\n"], "{sandbox}");
        let message = last_message(&scene);
        assert!(message.starts_with("[The plan has ended") && message.ends_with("\n\ngo on"));
        run.write(b"\x04");
        assert_eq!(run.end().code(), Some(0));
    }
}

#[test]
fn sessions_begin_and_are_copied_and_written_out() {
    if !is_confined("sessions_begin_and_are_copied_and_written_out") {
        return;
    }
    let script = vec![ServerAnswer::text("first answer"), ServerAnswer::text("second answer")];
    let scene = AgentScene::new(script);
    let mut run = start(&scene, &["--session", "one"]);
    say(&mut run, "a question", "first answer");
    say(&mut run, "/fork one", "is one already");
    say(&mut run, "/fork two", "continues in session two");
    say(&mut run, "another", "second answer");
    let requests = |name: &str| {
        let log = scene.text(&format!("state/agent/{name}.jsonl"));
        log.matches(r#"{"record":"request","#).count()
    };
    assert_eq!((requests("one"), requests("two")), (1, 2));
    say(&mut run, "/history", "2. another");
    say(&mut run, "/session", "session two, scripted, ");
    let file = scene.path("out.md");
    let export = format!("/export {}", file.display());
    say(&mut run, &export, "written to");
    let text = scene.text("out.md");
    assert!(text.starts_with("# session two\n\n## User\n"), "{text}");
    assert!(
        text.contains("a question\n\n## Agent\n\nfirst answer\n\n## User\n\nanother"),
        "{text}"
    );
    scene.put("out.md", "mine");
    say(&mut run, &export, "must be a new file");
    assert_eq!(scene.text("out.md"), "mine");
    say(&mut run, "/effort low", "the effort of reasoning is low");
    say(&mut run, "/new", "a new conversation begins");
    // The request from before, by the key up.
    run.write(b"\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A");
    run.wait_for("a question");
    say(&mut run, "", "first answer");
    let last = scene.server.chats().pop().unwrap();
    assert!(last.body.contains(r#""reasoning_effort":"low""#), "{}", last.body);
    assert_eq!(last.messages().len(), 2);
    assert_eq!((requests("one"), requests("two")), (1, 2));
    run.write(b"\x04");
    assert_eq!(run.end().code(), Some(0));
    // The requests of other sessions of the folder are there too.
    let mut run = start(&scene, &[]);
    run.write(b"\x1b[A");
    run.wait_for("a question");
    run.write(b"\x03\x04");
    assert_eq!(run.end().code(), Some(0));
}

/// A tiny model with this chat template, in a folder of the scene.
fn model(scene: &AgentScene, template: &str) -> String {
    let (from, to) = (tiny(), scene.path("model"));
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let bytes = fs::read(entry.path()).unwrap();
        scene.put(&format!("model/{}", entry.file_name().display()), bytes);
    }
    let mut settings: Value =
        serde_json::from_str(&scene.text("model/tokenizer_config.json")).unwrap();
    settings["chat_template"] = template.into();
    scene.put("model/tokenizer_config.json", settings.to_string());
    to.to_str().unwrap().to_owned()
}

#[test]
fn an_effort_says_what_it_costs() {
    if !is_confined("an_effort_says_what_it_costs") {
        return;
    }
    let turns = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
        {% endfor %}";
    let begins = |effort: &str| {
        format!(
            "{turns}{{% if add_generation_prompt %}}<|im_start|>assistant\n{effort}{{% endif %}}"
        )
    };
    let before = format!("effort {{{{ reasoning_effort }}}}\n{}", begins(""));
    let after = begins("{{ reasoning_effort }}");
    for (template, expected, is_anew) in [
        (before, "the template renders it anew: ", true),
        (after, "the conversation continues from its tokens", false),
    ] {
        let scene = AgentScene::new(Vec::new());
        let model = model(&scene, &template);
        let start = |args: &[&str]| {
            let mut command = command();
            command.args(["agent", "-m", &model, "--ctx", "20000", "--max-tokens", "4"]);
            command.args(["--session", "one"]);
            command.arg("-C").arg(scene.path("work")).arg("--state-dir").arg(scene.path("state"));
            command.args(args).env("TERM", "xterm").env("TMPDIR", scene.path("tmp"));
            PtyRun::start(command, "/help lists the commands", true)
        };
        let mut run = start(&[]);
        let answers = |number: usize| {
            let log = scene.text("state/agent/one.jsonl");
            log.matches(r#""role":"assistant""#).count() == number
        };
        run.write(b"begin\r");
        run.wait_until("it has answered", |_| answers(1));
        say(&mut run, "/effort high", expected);
        say(&mut run, "/effort much", "expected none, minimal");
        run.write(b"more\r");
        run.wait_until("it has answered again", |_| answers(2));
        run.wait_until("the numbers are there", |run| run.output.contains(" tok/s"));
        assert!(run.output.contains("prefill "), "{}", run.output);
        run.write(b"\x04");
        assert_eq!(run.end().code(), Some(0));
        // The tokens in the log are those of this effort, or of every one.
        let mut starts = [(&[][..], false), (&["--effort", "high"], true)];
        if is_anew {
            starts = [(&["--effort", "high"], false), (&[], true)];
        }
        for (args, is_other) in starts {
            let mut run = start(args);
            let is_said = run.output.contains("the messages are rendered anew");
            assert_eq!(is_said, is_other, "{template}, {args:?}");
            run.write(b"\x04");
            run.end();
        }
    }
}

#[test]
fn jobs_are_listed_until_the_tools_are_started_anew() {
    if !is_confined("jobs_are_listed_until_the_tools_are_started_anew") {
        return;
    }
    let command = json!({"command": "sleep 1000", "wait_s": 0});
    let scene = AgentScene::new(vec![
        ServerAnswer::calls(&[("1", "bash", command)]),
        ServerAnswer::text("it runs"),
    ]);
    let mut run = start(&scene, &["--no-session"]);
    say(&mut run, "/jobs", "no command runs");
    say(&mut run, "begin", "it runs");
    run.wait_until("the line below has it", |run| run.output.contains("1 job"));
    say(&mut run, "/jobs", "] sleep 1000");
    say(&mut run, "/sandbox read-only", "1 job has ended");
    say(&mut run, "/jobs", "no command runs");
    say(&mut run, "/sandbox none", "expected workspace, read-only or off");
    say(&mut run, "/confirm writes", "the questions are writes");
    say(&mut run, "/mcp", "no MCP server");
    say(&mut run, "/fork x", "none is kept");
    run.write(b"\x04");
    assert_eq!(run.end().code(), Some(0));
    until("nothing is left", || scene.path("tmp").read_dir().unwrap().count() == 0);
}

/// A server of MCP whose tool says that it only reads, and writes; or one that does not start.
const SERVER: &str = r#"
import json, sys, time
if sys.argv[1] == "slow": time.sleep(1000)
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request: continue
    method, result = request["method"], {}
    if method == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    elif method == "tools/list":
        result = {"tools": [{"name": "t", "inputSchema": {"type": "object"},
                             "annotations": {"readOnlyHint": True}}]}
    else:
        try:
            open(sys.argv[1], "a").write("x")
            text = "written"
        except OSError as error:
            text = type(error).__name__
        result = {"content": [{"type": "text", "text": text}]}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"#;

/// Settings with the server, whose argument is this one; `None`, with a note, without Python.
fn put_server(scene: &AgentScene, argument: &str) -> Option<std::path::PathBuf> {
    let python = "/usr/bin/python3";
    if !std::path::Path::new(python).exists() {
        let _ = writeln!(std::io::stderr(), "skipped: servers of MCP: no {python}");
        return None;
    }
    let argument = if argument == "slow" { "slow".into() } else { scene.path(argument) };
    let command = json!([python, "-c", SERVER, argument]);
    scene.put("home/gannet/gannet.yaml", json!({"mcp": {"s": {"command": command}}}).to_string());
    Some(scene.path("home"))
}

#[test]
fn servers_obey_the_plan_and_the_sandbox_of_then() {
    if !is_confined("servers_obey_the_plan_and_the_sandbox_of_then") {
        return;
    }
    let call = |id: &str| ServerAnswer::calls(&[(id, "s__t", json!({}))]);
    let scene = AgentScene::new(vec![
        call("1"),
        ServerAnswer::text("one is done"),
        call("2"),
        ServerAnswer::text("two is done"),
        call("3"),
        ServerAnswer::text("three is done"),
    ]);
    let Some(config) = put_server(&scene, "work/x") else { return };
    let mut command = scene.command();
    command.env("TERM", "xterm").env("XDG_CONFIG_HOME", config);
    let mut run = PtyRun::start(command, "/help lists the commands", true);
    say(&mut run, "go", "one is done");
    say(&mut run, "/plan", "nothing is written until the next /plan");
    say(&mut run, "go", "two is done");
    assert_eq!(scene.text("work/x"), "x");
    say(&mut run, "/plan", "the plan has ended");
    say(&mut run, "go", "three is done");
    assert_eq!(scene.text("work/x"), "xx");
    run.write(b"\x04");
    assert_eq!(run.end().code(), Some(0));
}

#[test]
fn a_new_session_stays_in_the_plan() {
    if !is_confined("a_new_session_stays_in_the_plan") {
        return;
    }
    let scene = AgentScene::new(vec![
        ServerAnswer::calls(&[("1", "write", write("a.txt", "one"))]),
        ServerAnswer::text("that was it"),
    ]);
    let mut run = start(&scene, &["--confirm", "allow"]);
    say(&mut run, "/plan", "nothing is written until the next /plan");
    say(&mut run, "/new", "a new conversation begins");
    say(&mut run, "go", "that was it");
    assert_eq!(scene.text("work/a.txt"), "absent");
    assert!(last_message(&scene).contains("From here on, plan"), "{}", last_message(&scene));
    run.write(b"\x04");
    assert_eq!(run.end().code(), Some(0));
}

#[test]
fn servers_that_start_hold_no_signal_up() {
    if !is_confined("servers_that_start_hold_no_signal_up") {
        return;
    }
    let scene = AgentScene::new(vec![ServerAnswer::text("done")]);
    let Some(config) = put_server(&scene, "slow") else { return };
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut command = scene.command();
        command.env("TERM", "xterm").env("XDG_CONFIG_HOME", &config);
        let mut run = PtyRun::begin(command, "starting MCP servers", false);
        run.kill(signal);
        assert_eq!(run.wait().code(), Some(code), "{signal:?}");
        let mut command = scene.command();
        command.args(["--json", "go"]).env("XDG_CONFIG_HOME", &config);
        let mut agent = RunningAgent::start(command);
        agent.event("session");
        agent.signal(signal);
        assert_eq!(agent.end().code, Some(code), "{signal:?}");
        assert_eq!(scene.path("tmp").read_dir().unwrap().count(), 0, "{signal:?}");
    }
}

#[test]
fn the_time_of_the_work_begins_with_each_request() {
    if !is_confined("the_time_of_the_work_begins_with_each_request") {
        return;
    }
    let scene = AgentScene::new(vec![
        ServerAnswer::text("the first"),
        endless("the second"),
        ServerAnswer::text("the third"),
    ]);
    let mut run = start(&scene, &["--timeout", "3"]);
    say(&mut run, "go", "the first");
    say(&mut run, "go", "a limit has ended the work");
    say(&mut run, "go", "the third");
    run.write(b"\x04");
    assert_eq!(run.end().code(), Some(0));
}

#[test]
fn a_conversation_is_compacted() {
    if !is_confined("a_conversation_is_compacted") {
        return;
    }
    let summary = json!({
        "goal": "g", "constraints": [], "decisions": [], "state": "", "next_step": "",
    });
    let server = ChatServer::new(8000, move |body| {
        let messages = body["messages"].as_array().unwrap();
        let last = messages.last().unwrap()["content"].as_str().unwrap_or_default();
        let text = match last.contains("The conversation is about to be replaced") {
            true => summary.to_string(),
            false => format!("{}the end", "words ".repeat(900)),
        };
        // Without counts of the server, tokens are counted by the bytes of the messages.
        let text = delta(&json!({"content": text}));
        ServerAnswer::beginning(&format!("{text}{}", finished("stop")))
    });
    let scene = AgentScene::with(server);
    let mut run = start(&scene, &[]);
    say(&mut run, "/compact", "no summary came about that frees a third");
    for _ in 0..2 {
        say(&mut run, "go", "the end");
    }
    say(&mut run, "/compact the colours", "compacted: ");
    assert!(last_message(&scene).contains("It matters: the colours"));
    say(&mut run, "go", "the end");
    let messages = scene.server.chats().last().unwrap().messages();
    let is_summary = |it: &Value| it["content"].as_str().unwrap().contains("Summary of the conv");
    assert!(messages.iter().any(is_summary), "{messages:?}");
    run.write(b"\x04");
    assert_eq!(run.end().code(), Some(0));
}

#[test]
fn a_prompt_of_the_command_line_has_a_text() {
    let scene = AgentScene::new(Vec::new());
    let mut command = scene.command();
    command.args(["--no-session", " "]).env("TERM", "xterm");
    let mut run = PtyRun::begin(command, "the prompt is empty", true);
    assert_eq!(run.wait().code(), Some(1));
}

#[test]
fn what_was_typed_before_a_question_does_not_answer_it() {
    if !is_confined("what_was_typed_before_a_question_does_not_answer_it") {
        return;
    }
    let waits = bash("touch begun; while [ ! -e go ]; do sleep 0.01; done");
    let scene = AgentScene::new(vec![
        ServerAnswer::calls(&[("1", "bash", waits)]),
        ServerAnswer::calls(&[("2", "bash", bash("echo x >>log"))]),
        ServerAnswer::text("that was it"),
    ]);
    let mut command = scene.command();
    command.args(["-p", "go", "--confirm", "writes"]);
    let mut run = PtyRun::begin(command, "allow? ", true);
    run.write(b"y\n");
    run.wait_until("the command runs", |_| scene.text("work/begun").is_empty());
    run.write(b"y\ny\n");
    scene.put("work/go", "");
    run.wait_for("echo x >>log\r\nallow? ");
    run.write(b"n\n");
    run.wait_for("that was it");
    assert_eq!((run.wait().code(), scene.text("work/log").as_str()), (Some(3), "absent"));
}
