//! `gannet chat --session` and `gannet sessions`.

use crate::gannet::{Ended, check_error, command, file, run, run_with_input, until};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;

const LINES: [&str; 4] = [
    "My name is Tom. The weather is sunny, and the capital of France is Paris.",
    "What is my name?",
    "What is the capital of France?",
    "Tell me a story.",
];

/// A folder of state, with the folder of prefixes in it.
struct State(TempDir);

impl State {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join("sessions").join(format!("{name}.json"))
    }

    fn read(&self, name: &str) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.file(name)).unwrap()).unwrap()
    }

    /// The arguments of a chat, without its session.
    fn chat(&self) -> Vec<String> {
        let kv = self.0.path().join("kv").to_str().unwrap().to_owned();
        let args = ["chat", "-n", "24", "--state-dir", self.path(), "--kv-dir", &kv];
        let stores = ["--kv-dir-min-tokens", "32", "--kv-dir-write", "all", "--stats"];
        args.into_iter().chain(stores).map(str::to_owned).collect()
    }

    /// A chat of these lines.
    fn say(&self, more: &[&str], lines: &[&str]) -> Ended {
        self.say_and_end(0, more, lines)
    }

    /// A chat of these lines, which ends with this code.
    fn say_and_end(&self, code: i32, more: &[&str], lines: &[&str]) -> Ended {
        let mut args = self.chat();
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        let ended = run_with_input(&args, &(lines.join("\n") + "\n"));
        assert_eq!(ended.code, Some(code), "{}", ended.err);
        ended
    }

    fn sessions(&self, args: &[&str]) -> Ended {
        run(&[&["sessions", "--state-dir", self.path()], args].concat())
    }

    fn sessions_succeed(&self, args: &[&str]) -> String {
        let ended = self.sessions(args);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        ended.out
    }

    fn list(&self) -> Vec<Value> {
        serde_json::from_str(&self.sessions_succeed(&["list", "--json"])).unwrap()
    }

    /// Files of the folder of sessions.
    fn files(&self) -> Vec<String> {
        let entries = self.0.path().join("sessions").read_dir().unwrap();
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let mut files: Vec<_> = entries.map(|it| name(it).into_string().unwrap()).collect();
        files.sort_unstable();
        files
    }
}

/// The content of each message.
fn contents(session: &Value) -> Vec<&str> {
    let messages = session["messages"].as_array().unwrap();
    messages.iter().map(|message| message["content"].as_str().unwrap()).collect()
}

#[test]
fn a_resumed_session_answers_as_one_never_left() {
    let sampled = ["--temp", "1.4", "--top-k", "30", "--seed", "18446744073709551557"];
    for sampling in [&["--temp", "0", "--seed", "5"][..], &sampled] {
        let state = State::new();
        // Without a session, in one, and in one that is left after each answer.
        let plain = state.say(sampling, &LINES);
        let whole = state.say(&[&["--session", "whole"], sampling].concat(), &LINES);
        let mut resumed = state.say(&[&["--session", "left"], sampling].concat(), &LINES[..1]).out;
        for line in &LINES[1..] {
            // The options are those of the session.
            let answer = state.say(&["--session", "left"], &[line]);
            assert!(answer.err.contains(" cached)"), "{}", answer.err);
            resumed += &answer.out;
        }
        assert_eq!(plain.out, whole.out);
        assert_eq!(plain.out, resumed);
        let [whole, left] = ["whole", "left"].map(|name| state.read(name));
        for field in ["messages", "seeds", "sampling", "system", "think", "model", "settings"] {
            assert_eq!(whole[field], left[field], "{field}");
        }
        assert_eq!(contents(&left).len(), 8);
        assert!(left["seeds"][3].is_u64(), "{left}");
        assert_eq!(state.files(), ["left.json", "whole.json"]);
    }
}

#[test]
fn an_answer_is_drawn_again_from_its_seed() {
    let state = State::new();
    let hot = ["--temp", "1.8"];
    let first = state.say(&[&["--session", "a"], &hot[..]].concat(), &LINES[3..]);
    let second = state.say(&["--session", "b", "--temp", "1.8"], &LINES[3..]);
    let seed = |name: &str| state.read(name)["seeds"][0].as_u64().unwrap();
    assert_ne!(seed("a"), seed("b"));
    let again =
        |name| state.say(&["--temp", "1.8", "--seed", &seed(name).to_string()], &LINES[3..]);
    assert_eq!([again("a").out, again("b").out], [first.out, second.out]);
    assert!(state.read("a")["sampling"]["seed"].is_null());
}

#[test]
fn a_forbidden_token_stays_forbidden() {
    let state = State::new();
    state.say(&["--session", "a", "--logit-bias", "5=-inf"], &LINES[..1]);
    assert_eq!(state.read("a")["sampling"]["logit_bias"], serde_json::json!([[5, "-inf"]]));
    state.say(&["--session", "a"], &LINES[1..2]);
    assert_eq!(state.list()[0]["turns"], 2);
}

#[test]
fn a_fork_of_a_chat_that_does_not_begin_is_not_kept() {
    let state = State::new();
    state.say(&["--session", "a"], &LINES[..1]);
    let chat = ["chat", "--state-dir", state.path(), "--session", "a", "--fork", "b"];
    let failed = run(&[&chat[..], &["-m", "/nowhere.gguf"]].concat());
    check_error(&failed, "/nowhere.gguf");
    assert_eq!(state.files(), ["a.json"]);
    // It is a copy as soon as it begins.
    state.say(&["--session", "a", "--fork", "b", "--temp", "0.5"], &[]);
    assert_eq!(state.read("b"), state.read("a"));
}

#[test]
fn a_fork_leaves_its_origin_alone() {
    let state = State::new();
    state.say(&["--session", "origin", "--system", "Be brief.", "--no-think"], &LINES[..2]);
    let before = std::fs::read(state.file("origin")).unwrap();
    let missing = run(&["chat", "--state-dir", state.path(), "--session", "none", "--fork", "x"]);
    check_error(&missing, "none.json: no such session");
    state.say(&["--session", "origin", "--fork", "one"], &LINES[2..3]);
    let chatted = ["/fork two", LINES[3], "/rewind", LINES[3], "/fork one", "/sessions"];
    let ended = state.say_and_end(1, &["--session", "origin"], &chatted);
    assert!(ended.err.contains("there is a session one already"), "{}", ended.err);
    assert!(ended.err.contains("two  (3 turns"), "{}", ended.err);
    assert_eq!(std::fs::read(state.file("origin")).unwrap(), before);
    let (origin, one, two) = (state.read("origin"), state.read("one"), state.read("two"));
    for (fork, last) in [(&one, LINES[2]), (&two, LINES[3])] {
        assert_eq!(contents(fork)[..4], contents(&origin)[..]);
        assert_eq!((contents(fork)[4], contents(fork).len()), (last, 6));
        assert_eq!((&fork["system"], &fork["think"]), (&origin["system"], &origin["think"]));
    }
    // A chat without a session can become one.
    state.say_and_end(1, &[], &[LINES[0], "/rename x", "/fork three"]);
    // The name of the chat's own session is no other.
    let own = state.say_and_end(1, &["--session", "three"], &["/fork three", "/rename three"]);
    assert_eq!(own.err.matches("the chat is in three already").count(), 2, "{}", own.err);
    assert_eq!(contents(&state.read("three")).len(), 2);
}

#[test]
fn settings_change_no_session_that_has_begun() {
    let state = State::new();
    let begun = ["--session", "a", "--temp", "0.5", "--system", "Be brief."];
    state.say(&begun, &LINES[..1]);
    let before = state.read("a");
    let settings = file("other-options.yaml", "temp: 0.9\nsystem: Be loud.\nmodel: /no/model\n");
    let chat = |more: &[&str]| {
        let args = ["--config", &settings].map(str::to_owned).into_iter().chain(state.chat());
        let args: Vec<_> = args.chain(more.iter().map(|arg| (*arg).to_owned())).collect();
        run_with_input(&args, &(LINES[1].to_owned() + "\n"))
    };
    let ended = chat(&["--session", "a"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let after = state.read("a");
    assert_eq!(contents(&after).len(), 4);
    for field in ["sampling", "system", "model"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    // A new one begins with them, and what is given again wins.
    check_error(&chat(&["--session", "b"]), "/no/model");
    let ended = chat(&["--session", "a", "--temp", "0"]);
    assert_eq!((ended.code, &state.read("a")["sampling"]["temperature"]), (Some(0), &0.0.into()));
}

#[test]
fn sessions_are_imported_from_standard_input() {
    let state = State::new();
    state.say(&["--session", "a"], &LINES[..1]);
    let exported = state.sessions_succeed(&["export", "a"]);
    let args = ["sessions", "--state-dir", state.path(), "import", "-", "--name", "b"];
    assert_eq!(run_with_input(&args, &exported).code, Some(0));
    assert_eq!(contents(&state.read("b")), contents(&state.read("a")));
    check_error(&run_with_input(&args[..5], &exported), "give the session a name: --name");
}

#[test]
fn sessions_are_rewound_renamed_shown_and_removed() {
    let state = State::new();
    let lines = [LINES[0], LINES[1], LINES[2], "/rewind 2", "/rename b c"];
    state.say(&["--session", "a", "--no-think"], &lines);
    let nothing = state.say_and_end(1, &[], &["/rewind"]);
    assert!(nothing.err.contains("there is no question to remove"), "{}", nothing.err);
    let lines = ["/rewind 2", "/system Be brief."];
    let ended = state.say_and_end(1, &["--session", "b c"], &lines);
    assert!(ended.err.contains("expected to remove at most 1, found 2"), "{}", ended.err);
    let session = state.read("b c");
    assert_eq!((contents(&session).len(), &session["system"]), (2, &Value::from("Be brief.")));
    assert_eq!(state.files(), ["b c.json"]);
    let shown = state.sessions_succeed(&["show", "b c"]);
    let answer = contents(&session)[1];
    assert_eq!(
        shown.trim_end(),
        format!("[system]\nBe brief.\n\n[user]\n{}\n\n[assistant]\n{answer}", LINES[0]).trim_end()
    );
    let whole: Value =
        serde_json::from_str(&state.sessions_succeed(&["show", "b c", "--json"])).unwrap();
    assert_eq!(whole, session);

    state.sessions_succeed(&["rename", "b c", "d"]);
    check_error(&state.sessions(&["rename", "b c", "e"]), "b c.json: no such session");
    let listed = state.list();
    assert_eq!((&listed[0]["name"], &listed[0]["turns"]), (&Value::from("d"), &Value::from(1)));
    assert_eq!(listed[0]["title"], "My name is Tom. The weather is sunny, and the capital of Fra");
    assert!(state.sessions_succeed(&["list"]).starts_with("d  (1 turn, "));
    let file = state.0.path().join("out.json");
    state.sessions_succeed(&["export", "d", "-o", file.to_str().unwrap()]);
    assert_eq!(state.sessions_succeed(&["export", "d"]), std::fs::read_to_string(&file).unwrap());
    let again = state.sessions(&["export", "d", "-o", file.to_str().unwrap()]);
    check_error(&again, "out.json exists already");
    state.sessions_succeed(&["import", file.to_str().unwrap()]);
    state.sessions_succeed(&["import", file.to_str().unwrap(), "--name", "e"]);
    let taken = state.sessions(&["import", file.to_str().unwrap()]);
    check_error(&taken, "there is a session out already");
    assert_eq!([state.read("out"), state.read("e")], [session.clone(), session]);
    state.sessions_succeed(&["remove", "d", "e"]);
    assert_eq!(state.files(), ["out.json"]);
    check_error(&state.sessions(&["remove", "d"]), "d.json");
    assert_eq!(run(&["sessions", "show", "../x"]).code, Some(2));
}

#[test]
fn a_new_conversation_replaces_what_a_session_keeps_with_its_first_answer() {
    let state = State::new();
    let ended = state.say(&["--session", "a"], &[LINES[0], "/reset"]);
    assert!(ended.err.contains("session a keeps 1 question until the next answer"));
    assert_eq!(state.list()[0]["turns"], 1);
    state.say(&["--session", "a"], &["/reset", LINES[3]]);
    let listed = state.list();
    assert_eq!((&listed[0]["turns"], &listed[0]["title"]), (&1.into(), &LINES[3].into()));
}

#[test]
fn what_is_done_with_sessions_is_also_said_as_json() {
    let state = State::new();
    let answer = state.say(&["--session", "a", "--json"], &LINES[..2]).out;
    let answers: Vec<Value> =
        answer.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 2, "{answer}");
    assert!(answers.iter().all(|it| it["usage"]["completion_tokens"].as_u64() > Some(0)));
    let said =
        |args: &[&str]| -> Value { serde_json::from_str(&state.sessions_succeed(args)).unwrap() };
    let file = state.0.path().join("a.json");
    let file = file.to_str().unwrap();
    assert_eq!(said(&["rename", "a", "b", "--json"])["name"], "b");
    assert_eq!(said(&["export", "b", "-o", file, "--json"])["file"], file);
    assert_eq!(said(&["import", file, "--json"])["name"], "a");
    assert_eq!(said(&["remove", "a", "b", "--json"])["removed"], serde_json::json!(["a", "b"]));
    assert!(state.files().is_empty());
}

#[test]
fn a_chat_that_is_killed_between_turns_loses_none() {
    let state = State::new();
    let mut command = command();
    command.args(state.chat()).args(["--session", "a", "--temp", "0"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for (turn, line) in (1..).zip(&LINES[..2]) {
        writeln!(stdin, "{line}").unwrap();
        let turns = || state.list().first().and_then(|listed| listed["turns"].as_u64());
        until("the answer is kept", || turns() == Some(turn));
    }
    // While one process holds it, others can read it and nothing else.
    let held = "cannot hold the session a";
    check_error(&run(&["chat", "--state-dir", state.path(), "--session", "a"]), held);
    check_error(&state.sessions(&["rename", "a", "b"]), held);
    check_error(&state.sessions(&["remove", "a"]), held);
    assert!(state.sessions_succeed(&["show", "a"]).contains(LINES[1]));
    child.kill().unwrap();
    child.wait().unwrap();
    let resumed = state.say(&["--session", "a"], &LINES[2..]);
    let whole = state.say(&["--session", "b", "--temp", "0"], &LINES);
    assert!(whole.out.ends_with(&resumed.out));
    assert_eq!(state.read("a")["messages"], state.read("b")["messages"]);
    assert_eq!(state.files(), ["a.json", "b.json"]);
}

#[test]
fn a_chat_that_is_killed_at_any_moment_leaves_whole_turns() {
    let whole = State::new();
    let seeded = ["--session", "a", "--temp", "0", "--seed", "5"];
    whole.say(&seeded, &LINES);
    let whole = whole.read("a");
    let state = State::new();
    let mut kept = 0;
    for moment in 0..12 {
        let mut command = command();
        command.args(state.chat()).args(seeded);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let rest = LINES[kept..].join("\n") + "\n";
        child.stdin.as_mut().unwrap().write_all(rest.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(40 + 17 * moment));
        child.kill().unwrap();
        child.wait().unwrap();
        if !state.file("a").exists() {
            continue;
        }
        let session = state.read("a");
        let messages = session["messages"].as_array().unwrap();
        assert!(whole["messages"].as_array().unwrap().starts_with(messages), "{session}");
        kept = messages.len() / 2;
    }
    state.say(&seeded, &LINES[kept..]);
    assert_eq!(state.read("a")["messages"], whole["messages"]);
    assert_eq!(state.files(), ["a.json"]);
}

#[test]
fn damaged_and_newer_sessions_are_refused_and_left_alone() {
    let state = State::new();
    state.say(&["--session", "a"], &LINES[..1]);
    let good = std::fs::read_to_string(state.file("a")).unwrap();
    let cases = [
        (good.replace("\"format\": 1", "\"format\": 2"), "format: expected 1, found 2"),
        (good.replace("\"title\": \"", "\"title\": 7, \"x\": \""), "title: invalid type"),
        (good[..good.len() / 2].to_owned(), "EOF"),
        (String::new(), "EOF"),
    ];
    for (bad, expected) in cases {
        std::fs::write(state.file("a"), &bad).unwrap();
        let chat = run_with_input(&["chat", "--state-dir", state.path(), "--session", "a"], "Hi\n");
        for ended in [chat, state.sessions(&["show", "a"])] {
            check_error(&ended, expected);
            assert!(ended.err.contains("a.json"), "{}", ended.err);
        }
        assert!(state.list()[0]["error"].as_str().unwrap().contains(expected));
        assert!(state.sessions_succeed(&["list"]).contains("a  cannot be read: "));
        assert_eq!(std::fs::read_to_string(state.file("a")).unwrap(), bad);
    }
    state.sessions_succeed(&["remove", "a"]);
}

#[test]
fn another_model_or_mode_is_named() {
    let state = State::new();
    let gguf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tiny/model/tiny-q8_0.gguf");
    state.say(&["--session", "a"], &LINES[..1]);
    let same = state.say(&["--session", "a"], &LINES[1..2]);
    assert!(!same.err.contains("session a"), "{}", same.err);
    let exact = state.say(&["--session", "a", "--mode", "exact"], &LINES[1..2]);
    assert!(exact.err.contains("were computed in mode fast"), "{}", exact.err);
    let other = state.say(&["--session", "a", "-m", gguf.to_str().unwrap()], &LINES[1..2]);
    assert!(other.err.contains("its messages are rendered anew for"), "{}", other.err);
    // The model is that of the session from then on.
    let same = state.say(&["--session", "a"], &LINES[1..2]);
    assert!(!same.err.contains("rendered anew"), "{}", same.err);
    let source = state.read("a")["model"]["source"].as_str().unwrap().to_owned();
    assert!(Path::new(&source).is_absolute() && source.ends_with("tiny-q8_0.gguf"), "{source}");
}

#[test]
fn the_folder_of_state_is_named_by_flag_variable_or_settings() {
    let state = State::new();
    let settings = state.0.path().join("gannet.yaml");
    std::fs::write(&settings, format!("state-dir: {}\nmax-tokens: 2\n", state.path())).unwrap();
    let mut by_settings = command();
    by_settings.arg("--config").arg(&settings).args(["chat", "--session", "a", "--kv-dir", "off"]);
    let mut by_variable = command();
    by_variable.env("GANNET_STATE_DIR", state.path());
    by_variable.args(["chat", "--session", "b", "--kv-dir", "off", "-n", "2"]);
    for mut command in [by_settings, by_variable] {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"Hello\n").unwrap();
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(state.files(), ["a.json", "b.json"]);
    let off = run(&["chat", "--session", "a", "--state-dir", "off"]);
    check_error(&off, "--state-dir is off");
}
