//! Wrong arguments, and servers and keys that cannot be used.

use super::scene::{AgentScene, is_confined};
use super::server::{ChatServer, ServerAnswer};
use crate::gannet::{Ended, check_error, check_usage, run, succeed};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

const KEY: &str = "sk-0123456789abcdef";

fn scene() -> AgentScene {
    AgentScene::new(vec![ServerAnswer::text("done")])
}

/// Runs the command without `--json` and with an input that has ended.
fn ended(scene: &AgentScene, args: &[&str]) -> Ended {
    scene.command().args(args).output().unwrap().into()
}

#[test]
fn wrong_arguments_are_wrong_usage() {
    for (args, expected) in [
        (&["x", "--confirm", "always"][..], "outside, writes, refuse, allow"),
        (&["x", "--sandbox", "none"], "expected workspace, read-only or off, found none"),
        (&["x", "--allow", "bash: a; b"], "expected the words of one command"),
        (&["x", "--allow", "everything"], "expected a rule such as"),
        (&["x", "--max-turns", "0"], "--max-turns"),
        (&["x", "--max-turns", "many"], "--max-turns"),
        (&["x", "--timeout", "soon"], "--timeout"),
        (&["x", "--session", "../x"], "expected a name"),
        (&["x", "--session", "a", "--continue"], "--continue"),
        (&["x", "--session", "a", "--no-session"], "--no-session"),
        (&["x", "--fork", "a", "--no-session"], "--no-session"),
        (&["x", "--api-key-file", "f"], "--api-key-file: expected --url"),
        (&["--acp", "-C", "."], "--dir"),
        (&["--acp", "--output-schema", "f"], "--output-schema"),
        (&["x", "y"], "y"),
        (&["x", "--nonsense"], "--nonsense"),
    ] {
        check_usage(&run(&[&["agent"], args].concat()), expected);
    }
}

#[test]
fn a_session_that_is_not_there_is_named() {
    let scene = scene();
    check_error(&ended(&scene, &["--continue"]), "--continue: no session of");
    check_error(&ended(&scene, &["x", "--fork", "a"]), "--fork: expected --session or --continue");
    assert_eq!(scene.server.text(), "");
}

#[test]
fn folders_that_hold_everything_are_refused() {
    let scene = scene();
    let home = scene.path("home");
    std::os::unix::fs::symlink(&home, scene.path("link")).unwrap();
    std::os::unix::fs::symlink("/", scene.path("root")).unwrap();
    for folder in ["/", "/usr/..", "home", "home/../home", "link", "root"] {
        let path = scene.path(folder);
        let ended = ended_in(&scene, path.to_str().unwrap());
        check_error(&ended, "expected another folder than / and the home");
    }
    check_error(&ended_in(&scene, scene.path("none").to_str().unwrap()), "none");
    scene.put("file", "");
    check_error(&ended_in(&scene, scene.path("file").to_str().unwrap()), "found a file");
    for flag in ["--read", "--write"] {
        check_error(&ended(&scene, &["x", flag, "/no/such/folder"]), "/no/such/folder");
    }
    assert!(scene.server.chats().is_empty());
}

#[test]
fn folders_with_settings_and_sessions_are_not_written() {
    let scene = scene();
    for name in ["home/.config/gannet/x/file", "home/.local/state/gannet/agent/x", "state/agent/x"]
    {
        scene.put(name, "");
    }
    let work = scene.path("work");
    for (folder, expected) in [
        ("home/.config", "which has settings"),
        ("home/.config/gannet", "which has settings"),
        ("home/.config/gannet/x", "which has settings"),
        ("home/.local/state", "which has settings"),
        ("state", "--state-dir: expected a folder outside of"),
        ("state/agent", "--state-dir: expected a folder outside of"),
    ] {
        let path = scene.path(folder);
        let path = path.to_str().unwrap();
        check_error(&ended_in(&scene, path), expected);
        let mut command = in_folder(&scene, work.to_str().unwrap());
        command.args(["--write", path, "--no-session"]);
        check_error(&Ended::from(command.output().unwrap()), expected);
    }
    assert!(scene.server.chats().is_empty());
}

/// The command in another folder than the workspace of the scene.
fn ended_in(scene: &AgentScene, folder: &str) -> Ended {
    in_folder(scene, folder).output().unwrap().into()
}

fn in_folder(scene: &AgentScene, folder: &str) -> Command {
    let mut command = crate::gannet::command();
    command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
    command.env("HOME", scene.path("home"));
    command.args(["agent", "x", "-C", folder, "--url", &scene.server.url, "--state-dir"]);
    command.arg(scene.path("state"));
    command
}

#[test]
fn servers_that_cannot_answer_are_named() {
    if !is_confined("servers_that_cannot_answer_are_named") {
        return;
    }
    let scene = scene();
    check_error(&ended(&scene, &["x", "-m", "other"]), "the server lists no model other");
    let with = |url: &str| {
        let mut command = crate::gannet::command();
        command.args(["agent", "x", "--no-session", "--url", url, "-C"]).arg(scene.path("work"));
        Ended::from(command.env("TMPDIR", scene.path("tmp")).output().unwrap())
    };
    check_error(&with("http://127.0.0.1:1"), "cannot reach http://127.0.0.1:1/v1/models");
    check_error(&with("ftp://x"), "expected an address with http:// or https://");
    let secret = with("http://user:hunter22@127.0.0.1/");
    check_error(&secret, "expected it without user name");
    assert!(!secret.err.contains("hunter22"));
    assert_eq!(fs::read_dir(scene.path("tmp")).unwrap().count(), 0);
    assert!(scene.server.chats().is_empty());
}

#[test]
fn a_key_is_sent_and_never_shown() {
    if !is_confined("a_key_is_sent_and_never_shown") {
        return;
    }
    let server = ChatServer::new(1000, |_| ServerAnswer::text("done"));
    let scene = AgentScene::with(server);
    for content in [KEY.to_owned(), format!("{KEY}\n"), format!(" {KEY}\r\n\n")] {
        scene.put("key", content);
        let key = scene.path("key");
        let ended = ended(&scene, &["x", "-v", "--api-key-file", key.to_str().unwrap()]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(0), "done\n"), "{}", ended.err);
        assert!(!ended.err.contains(KEY), "{}", ended.err);
    }
    let all = scene.server.text();
    let sent = format!("authorization: Bearer {KEY}\r\n");
    assert_eq!(all.matches(&sent).count(), 6, "{all}");
    assert_eq!(all.matches(KEY).count(), 6);
}

#[test]
fn settings_name_a_server_its_key_and_the_length_of_an_answer() {
    if !is_confined("settings_name_a_server_its_key_and_the_length_of_an_answer") {
        return;
    }
    let server = ChatServer::new(1000, |_| ServerAnswer::text("done"));
    let scene = AgentScene::with(server);
    scene.put("key", KEY);
    let key = scene.path("key");
    let key = key.to_str().unwrap();
    let run = |settings: String, args: &[&str]| {
        scene.put("home/gannet/gannet.yaml", settings);
        let mut command = crate::gannet::command();
        command.args(["agent", "x", "--no-session", "-C"]).arg(scene.path("work")).args(args);
        command.env("XDG_CONFIG_HOME", scene.path("home")).env("TMPDIR", scene.path("tmp"));
        let ended = Ended::from(command.output().unwrap());
        assert_eq!(ended.code, Some(0), "{ended:?}");
    };
    let url = format!("url: {}\nmax-tokens: 77\n", scene.server.url);
    run(url.clone(), &["--api-key-file", key]);
    run(format!("{url}server-key-file: {key}\n"), &["-n", "5000"]);
    assert_eq!(scene.server.text().matches(&format!("Bearer {KEY}")).count(), 4);
    for chat in scene.server.chats() {
        assert!(chat.body.contains(r#""max_tokens":77"#), "{}", chat.body);
    }
}

#[test]
fn what_is_wrong_before_the_work_ends_lines_of_json_too() {
    let scene = scene();
    scene.put("wrong.yaml", "temp: warm\n");
    let wrong = scene.path("wrong.yaml");
    let wrong = wrong.to_str().unwrap();
    for (args, code, expected) in [
        (&["--config", wrong, "agent", "x", "--json"][..], 1, "invalid value 'warm'"),
        (&["agent", "x", "--json", "--confirm", "always"], 2, "invalid value 'always'"),
        (&["agent", "x", "--json", "--api-key-file", "f"], 2, "expected --url"),
    ] {
        let ended = run(args);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let end: Value = serde_json::from_str(ended.out.lines().last().unwrap()).unwrap();
        assert_eq!((&end["event"], &end["end"]), (&json!("end"), &json!("error")));
        assert!(end["error"].as_str().unwrap().contains(expected), "{end}");
    }
    assert_eq!(run(&["agent", "x", "--confirm", "always"]).out, "");
}

#[test]
fn a_schema_that_cannot_be_checked_is_refused() {
    let scene = scene();
    scene.put("schema.json", r#"{"properties": {"a": {"type": "string", "pattern": "x"}}}"#);
    let schema = scene.path("schema.json");
    let ended = ended(&scene, &["x", "--output-schema", schema.to_str().unwrap()]);
    check_error(&ended, "`pattern` of an answer of --url cannot be checked");
    assert!(scene.server.chats().is_empty());
}

#[test]
fn a_session_with_nothing_unfinished_expects_a_prompt() {
    if !is_confined("a_session_with_nothing_unfinished_expects_a_prompt") {
        return;
    }
    let scene = scene();
    assert_eq!(ended(&scene, &["x", "--session", "a"]).code, Some(0));
    check_error(&ended(&scene, &["--session", "a"]), "nothing is unfinished: expected a prompt");
    assert_eq!(scene.server.chats().len(), 1);
    scene.put("input", "and more\n");
    let mut command = scene.command();
    command.args(["--session", "a"]).stdin(fs::File::open(scene.path("input")).unwrap());
    // The script has ended.
    check_error(&Ended::from(command.output().unwrap()), "the script has ended");
    let messages = scene.server.chats()[1].messages();
    assert_eq!(messages.last().unwrap()["content"], "and more");
}

#[test]
fn a_key_that_a_server_repeats_is_hidden() {
    if !is_confined("a_key_that_a_server_repeats_is_hidden") {
        return;
    }
    let body = format!("{{\"error\": {{\"message\": \"{KEY} is wrong\"}}}}");
    let scene =
        AgentScene::with(ChatServer::new(1000, move |_| ServerAnswer::status("401 No", &body)));
    scene.put("key", KEY);
    let key = scene.path("key");
    let ended = ended(&scene, &["x", "--json", "--api-key-file", key.to_str().unwrap()]);
    check_error(&ended, "is wrong");
    assert!(!ended.err.contains(KEY) && !ended.out.contains(KEY), "{ended:?}");
    for (content, expected) in [("a\nb", "key"), ("\u{1b}", "key")] {
        scene.put("wrong", content);
        let wrong = scene.path("wrong");
        let ended = self::ended(&scene, &["x", "--api-key-file", wrong.to_str().unwrap()]);
        check_error(&ended, expected);
    }
    check_error(&self::ended(&scene, &["x", "--api-key-file", "/no/key"]), "/no/key");
}

#[test]
fn help_names_all_flags_and_exit_codes() {
    let help = succeed(&["agent", "--help"]);
    for part in [
        "--print",
        "--url",
        "--api-key-file",
        "--dir",
        "--sandbox",
        "--net",
        "--read",
        "--write",
        "--session",
        "--continue",
        "--fork",
        "--no-session",
        "--confirm",
        "--allow",
        "--max-turns",
        "--max-tokens",
        "--answer-tokens",
        "--timeout",
        "--json",
        "--system",
        "--no-instructions",
        "3 if",
        "4 at a limit",
    ] {
        assert!(help.contains(part), "{part} is not in: {help}");
    }
}

#[test]
fn a_prompt_is_an_argument_or_the_input() {
    if !is_confined("a_prompt_is_an_argument_or_the_input") {
        return;
    }
    let prompt = |args: &[&str], input: &str| {
        let scene = scene();
        scene.put("input", input);
        let mut command = scene.command();
        command.args(args).stdin(fs::File::open(scene.path("input")).unwrap());
        let ended = Ended::from(command.output().unwrap());
        assert_eq!((ended.code, ended.out.as_str()), (Some(0), "done\n"), "{}", ended.err);
        let messages = scene.server.chats()[0].messages();
        let text = messages[1]["content"].as_str().unwrap().to_owned();
        text.rsplit_once("\n\n").unwrap().1.to_owned()
    };
    assert_eq!(prompt(&["do this"], "other"), "do this");
    assert_eq!(prompt(&["-p", "do this"], ""), "do this");
    assert_eq!(prompt(&[], "from the input\n"), "from the input");
    assert_eq!(prompt(&["-"], "from the input\n"), "from the input");
}
