//! `serve` for others: its keys, sockets and certificates, what it reports, and its settings.

use crate::gannet::{Ended, check_error, check_usage, command, file, path, run, succeed, until};
use crate::serving::{QUESTION, Server};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

fn status_with(server: &Server, key: &str) -> String {
    let head = format!("GET /v1/models HTTP/1.1\r\nx-api-key: {key}\r\nx-rest:");
    server.request(&head, "")[.."HTTP/1.1 200".len()].to_owned()
}

#[test]
fn sighup_reads_the_keys_again_and_ends_nothing() {
    let keys = file("sighup-keys", "alice:hidden-1\n");
    let server = Server::start(&["-v", "--api-key-file", &keys]);
    assert_eq!(status_with(&server, "hidden-1"), "HTTP/1.1 200");
    file("sighup-keys", "bob:hidden-2\n");
    server.signal("-HUP");
    until("the keys are read", || status_with(&server, "hidden-2") == "HTTP/1.1 200");
    assert_eq!(status_with(&server, "hidden-1"), "HTTP/1.1 401");
    let (code, rest) = server.end("-TERM");
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains("caller=\"alice\"") && rest.contains("caller=\"bob\""), "{rest}");
    assert!(!rest.contains("hidden"), "{rest}");
}

#[test]
fn a_unix_socket_stands_in_for_the_port() {
    let socket = path("serve.sock");
    let server = Server::start_anywhere(&["--unix", &socket]);
    assert_eq!(server.address, format!("unix:{socket}"));
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (code, rest) = server.end("-TERM");
    assert_eq!(code, Some(0), "{rest}");
    assert!(!std::path::Path::new(&socket).exists());
}

#[test]
fn what_cannot_be_used_is_named_before_the_model_is_loaded() {
    let serve = |args: &[&str]| run(&[&["serve", "--model", "/no/model"], args].concat());
    let (none, bad) = (path("no-such-file"), file("bad.pem", "no certificate"));
    check_error(&serve(&["--api-key-file", &none]), "no-such-file");
    check_error(&serve(&["--tls-cert", &none, "--tls-key", &bad]), "no-such-file");
    check_error(
        &serve(&["--tls-cert", &bad, "--tls-key", &bad]),
        "bad.pem: expected a certificate",
    );
    check_usage(&serve(&["--tls-cert", &bad]), "tls-key");
    let ended = serve(&["--api-key", "hidden words"]);
    check_usage(&ended, "expected a key of printable ASCII characters");
    assert!(!ended.err.contains("hidden"), "{}", ended.err);
    check_error(&serve(&["--unix", &bad]), "bad.pem");
    let words = file("bad-keys", "ok\nhidden words\n");
    let ended = serve(&["--api-key-file", &words]);
    check_error(&ended, "bad-keys: line 2");
    assert!(!ended.err.contains("hidden"), "{}", ended.err);
}

#[test]
fn the_settings_in_effect_give_themselves_again() {
    let keys = file("printed-keys", "alice:hidden-1\n");
    let args = ["--api-key-file", &keys, "--api-key", "hidden-2", "--rate-limit", "5"];
    let more = ["--kv-memory", "64MiB", "--cors", "https://a.example", "--log-prompts"];
    let printed = succeed(&[&["serve", "--print-config"], &args[..], &more].concat());
    for line in ["rate-limit: 5", "# port: 8080", "log-prompts: true", "# a key of clients: alice"]
    {
        assert!(printed.lines().any(|one| one == line), "{line} is not in:\n{printed}");
    }
    assert!(!printed.contains("hidden-") && printed.contains("# a key of clients: sha256:"));
    let settings = file("printed.yaml", &printed);
    let again =
        succeed(&["--config", &settings, "serve", "--print-config", "--api-key", "hidden-2"]);
    assert_eq!(again, printed);
}

#[test]
fn a_variable_holds_several_keys_between_commas_and_never_none() {
    let printed = |value: &str| {
        let mut command = command();
        command.env("GANNET_API_KEY", value).args(["serve", "--print-config"]);
        Ended::from(command.output().unwrap())
    };
    assert_eq!(printed("one,two").out.matches("# a key of clients: sha256:").count(), 2);
    check_usage(&printed(""), "API key 1: expected a key of 1 to 512 bytes, found 0");
}

#[test]
fn prompts_and_answers_are_reported_only_if_that_is_asked_for() {
    for (flags, expected) in [(["-vvv"].as_slice(), false), (&["-v", "--log-prompts"], true)] {
        let server = Server::start(flags);
        server.request("POST /v1/chat/completions?secret=query", QUESTION);
        server.request("POST /v1/chat/completions", &QUESTION.replace("]}", "]"));
        server.request("POST /v1/chat/completions", &QUESTION.replace("user", "capital"));
        let (_, rest) = server.end("-TERM");
        let reported = ["capital of France", "Paris"].map(|text| rest.contains(text));
        assert_eq!(reported, [expected; 2], "{rest}");
        assert!(!rest.contains("secret=query"), "{rest}");
    }
}

#[test]
fn serving_without_keys_beyond_this_machine_warns() {
    let warned = |more: &[&str]| {
        let ended = run(&[&["serve", "--port", "0", "--model", "/no/model"], more].concat());
        ["without API keys", "without TLS"].map(|warning| ended.err.contains(warning))
    };
    assert_eq!(warned(&[]), [false, false]);
    assert_eq!(warned(&["--host", "0.0.0.0"]), [true, true]);
    assert_eq!(warned(&["--host", "0.0.0.0", "--api-key", "secret"]), [false, true]);
}
