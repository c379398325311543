//! Exit codes: 0 done, 1 an operating error, 2 wrong usage, 130 Ctrl-C.

use crate::gannet::{Ended, check_error, check_usage, command, file, path, run, succeed, tiny};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

#[test]
fn wrong_usage_ends_with_two() {
    for args in [&["nonsense"][..], &[], &["run", "--temp", "warm"], &["inspect"], &["verify"]] {
        let ended = run(args);
        assert_eq!(ended.code, Some(2), "{args:?}: {}", ended.err);
        assert!(ended.err.contains("--help") && ended.out.is_empty(), "{}", ended.err);
    }
}

#[test]
fn values_out_of_their_range_are_wrong_usage_which_their_parsers_name() {
    for (flag, value, expected) in [
        ("--top-p", "2", "from 0 to 1"),
        ("--temp", "inf", "from 0 to 100"),
        ("--temp", "-1", "from 0 to 100"),
        ("--min-p", "2", "from 0 to 1"),
        ("--repeat-penalty", "0", "from 0.01 to 100"),
        ("--repeat-penalty", "-1", "from 0.01 to 100"),
        ("--kv-block", "17", "one of 16, 32"),
        ("--threads", "100000", "from 0 to 1024"),
        ("--threads", "-1", "from 0 to 1024"),
        ("--stop", "", "--stop"),
        ("-n", "0", "from 1 on, or -1"),
        ("--top-k", "-1", "invalid value '-1'"),
        ("--penalty-window", "-1", "invalid value '-1'"),
        ("--ctx", "-1", "from 1 on"),
    ] {
        check_usage(&run(&["run", "x", flag, value]), expected);
    }
    for flag in ["--port", "--grace", "--rate-limit-tokens"] {
        check_usage(&run(&["serve", flag, "-1"]), "invalid value '-1'");
    }
    check_usage(&run(&["run", "x", "--logprobs", "-1", "-o", "x"]), "invalid value '-1'");
    check_error(&run(&["detokenize", "builtin", "-1"]), "-1: not a token id");
    let printed = succeed(&["serve", "--print-config", "--keep-alive", "-5m"]);
    assert!(printed.contains("keep-alive: \"-5m\""), "{printed}");
}

#[test]
fn errors_are_json_where_logs_are() {
    let settings = file("unknown.yaml", "tempo: 1\n");
    let asked = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = command();
        command.envs(variables.iter().copied()).args(args);
        let ended: Ended = command.output().unwrap().into();
        let lines = ended.err.lines();
        let events = lines.map(|line| serde_json::from_str(line).expect(line));
        (ended.code, events.collect::<Vec<Value>>())
    };
    let json = ["--log-format", "json"];
    let variable = [("GANNET_LOG_FORMAT", "json")];
    let usage = |(code, events): (Option<i32>, Vec<Value>), expected: &str| {
        assert_eq!((code, events.len()), (Some(2), 1), "{events:?}");
        assert_eq!(events[0]["level"], "ERROR");
        assert!(events[0]["message"].as_str().unwrap().contains(expected), "{events:?}");
    };
    usage(asked(&["run", "x", "--top-p", "2", "--log-format=json"], &[]), "--top-p");
    usage(asked(&["nonsense"], &variable), "nonsense");
    usage(asked(&[&json[..], &["serve", "--tls-cert", "x"]].concat(), &[]), "--tls-cert");
    let config = [&json[..], &["--config", &settings, "run", "x"]].concat();
    let (code, events) = asked(&config, &[]);
    assert_eq!((code, events.len()), (Some(1), 1), "{events:?}");
    assert!(events[0]["message"].as_str().unwrap().contains("tempo: no such setting"));
    // An error and its cause are one event; a wrong filter is another.
    let answered = [&json[..], &["run", "x", "-n", "1"]].concat();
    let (code, events) = asked(&answered, &[("GANNET_LOG", "a=b=c")]);
    assert_eq!(code, Some(0), "{events:?}");
    assert_eq!(events[0]["level"], "WARN");
    assert!(events[0]["message"].as_str().unwrap().starts_with("GANNET_LOG: "), "{events:?}");
    let (code, events) = asked(&[&json[..], &["run", "-f", "/no/file"]].concat(), &[]);
    assert_eq!((code, events.len()), (Some(1), 1), "{events:?}");
    let message = events[0]["message"].as_str().unwrap();
    assert!(message.starts_with("cannot read /no/file\n  "), "{message}");
}

#[test]
fn help_and_version_end_with_zero() {
    assert!(succeed(&["--version"]).starts_with("gannet "));
    let commands =
        ["run", "chat", "serve", "synth", "inspect", "verify", "bench", "perplexity", "compare"];
    for command in commands.into_iter().chain(["quantize", "imatrix", "splice"]) {
        assert!(succeed(&[command, "--help"]).contains("Usage: gannet"), "{command}");
    }
    assert!(succeed(&["completions", "bash"]).contains("gannet"));
}

#[test]
fn errors_name_what_is_missing() {
    check_error(&run(&["run", "-m", "/no/such/model", "x"]), "/no/such/model");
    check_error(&run(&["inspect", "nothing.gguf"]), "nothing.gguf: no such file");
    check_error(&run(&["tokenize", &tiny(), "--file", "/no/text"]), "/no/text");
    let binary = file("binary.txt", [0x61, 0xff]);
    check_error(&run(&["tokenize", &tiny(), "--file", &binary]), "binary.txt: expected UTF-8");
    check_error(&run(&["synth", "elephant", "-o", &path("e")]), "elephant");
}

#[test]
fn an_unreachable_hub_is_named() {
    let args = ["run", "-m", "owner/name", "--hub-endpoint", "http://127.0.0.1:1", "x"];
    check_error(&run(&args), "http://127.0.0.1:1");
}

/// A generation that takes its time, and has begun.
#[cfg(unix)]
fn endless() -> (Child, impl Read) {
    let args = ["run", "-m", &tiny(), "x", "--ignore-eos", "--ctx", "100000"];
    let mut command = command();
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    assert!(!out.fill_buf().unwrap().is_empty(), "it has begun");
    (child, out)
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_generation_at_once_with_130() {
    let (mut child, _out) = endless();
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let begun = std::time::Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(begun.elapsed().as_secs() < 5);
}

/// The code of a long work that a signal ends, and what it leaves in its folder.
#[cfg(unix)]
fn ended_by(signal: &str, starter: &[&str]) -> (Option<i32>, usize) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("big.gguf");
    let gannet = command().get_program().to_owned();
    let mut words: Vec<std::ffi::OsString> = starter.iter().map(Into::into).collect();
    words.extend([gannet, "synth".into(), "qwen3-0.6b".into(), "-o".into(), out.into()]);
    let mut command = std::process::Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    crate::gannet::until("it has begun", || folder.path().read_dir().unwrap().count() > 0);
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args([signal, &id]).status().unwrap().success());
    if !starter.is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(300));
        let running = child.try_wait().unwrap().is_none();
        assert!(running, "nohup keeps it from ending");
        child.kill().unwrap();
    }
    (child.wait().unwrap().code(), folder.path().read_dir().unwrap().count())
}

#[cfg(unix)]
#[test]
fn signals_end_long_work_with_their_codes_and_leave_nothing() {
    assert_eq!(ended_by("-INT", &[]), (Some(130), 0));
    assert_eq!(ended_by("-TERM", &[]), (Some(143), 0));
    assert_eq!(ended_by("-HUP", &[]), (Some(129), 0));
    ended_by("-HUP", &["nohup"]);
}

#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let (child, out) = endless();
    drop(out);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
}
