//! Exit codes: 0 done, 1 an operating error, 2 wrong usage, 130 Ctrl-C.

use crate::gannet::{check_error, command, file, path, run, succeed, tiny};
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
    check_error(&run(&["run", "x", "--top-p", "7"]), "top_p");
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

#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let (child, out) = endless();
    drop(out);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
}
