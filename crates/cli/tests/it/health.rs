//! What health checks and service managers see of a server, and the manual pages of packages.

use crate::gannet::{Ended, check_usage, command, file, path, run, succeed};
use crate::serving::Server;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The exit code of `health`, and whether its JSON says the same.
#[track_caller]
fn check(args: &[&str], code: i32, expected: &str) {
    let ended = run(&[&["health", "--json"], args].concat());
    assert_eq!((ended.code, &*ended.err), (Some(code), ""), "{ended:?}");
    let answer: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(answer["healthy"], code == 0, "{answer}");
    assert!(ended.out.contains(expected), "{expected} is not in {answer}");
}

#[test]
fn health_is_the_exit_code_by_address_port_socket_and_settings() {
    let socket = path("health.sock");
    let server = Server::start(&["--unix", &socket]);
    let address = server.address.clone();
    let (_, port) = address.rsplit_once(':').unwrap();
    let (url, unix) = (format!("http://{address}"), format!("unix:{socket}"));
    check(&[&url], 0, &url);
    check(&[&unix], 0, &unix);
    check(&["--port", port], 0, &url);
    check(&["--unix", &socket], 0, &unix);
    let settings = file("health.yaml", format!("port: {port}\nunix: {socket}\nparallel: 4\n"));
    let lines = succeed(&["--config", &settings, "health"]);
    assert_eq!(lines, format!("{unix}: healthy\n{url}: healthy\n"));
    check(&[&format!("{url}/no-such-path")], 1, "status 404");
    assert_eq!(server.end("-TERM").0, Some(0));
    check(&["--port", port], 1, "cannot connect");
    check(&["--unix", &socket], 1, "cannot connect");
}

#[test]
fn all_addresses_must_answer() {
    let server = Server::start(&[]);
    let (_, port) = server.address.rsplit_once(':').unwrap();
    let ended = run(&["health", "--port", port, "--unix", &path("no-such.sock")]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.out.contains(": healthy\n") && ended.out.contains("no-such.sock: not healthy"));
}

#[test]
fn a_server_that_says_nothing_is_not_healthy_after_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let started = Instant::now();
    check(&[&url, "--timeout", "0.2"], 1, "no answer within 0.2 s");
    assert!(started.elapsed() < Duration::from_secs(20));
    let other = std::thread::spawn(move || {
        // The first is the request that was given up.
        for answer in ["", "SSH-2.0-x\r\n"] {
            let (mut stream, _) = listener.accept().unwrap();
            assert_ne!(stream.read(&mut [0; 512]).unwrap(), 0);
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    check(&[&url], 1, "not HTTP");
    other.join().unwrap();
}

#[test]
fn wrong_addresses_are_wrong_usage() {
    check_usage(&run(&["health", "https://localhost"]), "expected http://HOST:PORT or unix:PATH");
    check_usage(&run(&["health", "http://a", "--port", "1"]), "cannot be used with");
    check_usage(&run(&["health", "--port", "0"]), "--port: expected the port");
    check_usage(&run(&["health", "--timeout", "0"]), "more than 0 seconds");
}

#[test]
fn a_service_manager_hears_when_the_server_is_ready_and_when_it_ends() {
    let socket = path("notify.sock");
    let _ = std::fs::remove_file(&socket);
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let received = || {
        let mut message = [0; 64];
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    let mut program = command();
    program.env("NOTIFY_SOCKET", &socket);
    let server = Server::run(program, &["--port", "0"]);
    assert_eq!(received(), "READY=1");
    let (code, log) = server.end("-TERM");
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(received(), "STOPPING=1");
    let mut program = command();
    program.env("NOTIFY_SOCKET", path("no-such-notify.sock"));
    let server = Server::run(program, &["--port", "0"]);
    let (code, log) = server.end("-TERM");
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("NOTIFY_SOCKET: cannot tell the service manager"), "{log}");
}

#[test]
fn a_server_may_end_with_its_standard_input() {
    let mut program = command();
    program.stdin(Stdio::piped());
    let mut server = Server::run(program, &["--port", "0", "--stop-at-eof"]);
    assert!(server.request("GET /health", "").starts_with("HTTP/1.1 200"));
    drop(server.take_input());
    let (code, log) = server.end_by_itself();
    assert_eq!(code, Some(0), "{log}");
    // Standard input that has ended already.
    let ended = run(&["serve", "--port", "0", "--stop-at-eof"]);
    assert!(matches!(ended.code, Some(0 | 143)), "{ended:?}");
}

#[test]
fn every_command_has_a_manual_page_which_is_the_same_everywhere() {
    let (one, other) = (path("man-1"), path("man-2"));
    succeed(&["man", &one]);
    let mut elsewhere = command();
    elsewhere.env("GANNET_TEMP", "0.5").env("COLUMNS", "40").args(["man", &other]);
    let ended = Ended::from(elsewhere.output().unwrap());
    assert_eq!((ended.code, &*ended.err), (Some(0), ""), "{ended:?}");
    let help = succeed(&["--help"]);
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    let names = commands.lines().filter_map(|line| line.strip_prefix("  "));
    let names = names.filter_map(|line| line.split(' ').next()).filter(|name| !name.is_empty());
    let mut count = 0;
    for name in names.filter(|name| *name != "help") {
        let page = std::fs::read_to_string(format!("{one}/gannet-{name}.1")).unwrap();
        assert!(page.contains(".TH gannet-"), "{page}");
        assert_eq!(page, std::fs::read_to_string(format!("{other}/gannet-{name}.1")).unwrap());
        count += 1;
    }
    assert!(count > 20, "{count}");
    let nested = std::fs::read_to_string(format!("{one}/gannet-cache-verify.1")).unwrap();
    assert!(nested.contains("remove"), "{nested}");
    let ended = run(&["man", &file("man-file", "")]);
    assert!(ended.code == Some(1) && ended.err.contains("man-file"), "{ended:?}");
}

#[test]
fn the_settings_of_packages_are_settings() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/gannet.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|line| line.strip_prefix("# ").unwrap_or(line));
    // Lines that are to be uncommented are settings too.
    let is_setting = |line: &&str| line.split_once(": ").is_some_and(|(key, _)| !key.contains(' '));
    let mut settings: Vec<&str> = lines.filter(is_setting).collect();
    settings.retain(|line| *line != "host: 127.0.0.1");
    assert!(settings.len() > 4, "{settings:?}");
    let keys = self::file("packaged-keys", "alice:6f1c0b8a9d1e4f35\n");
    let settings = settings.join("\n").replace("/etc/gannet/keys", &keys);
    let all = self::file("packaged.yaml", settings);
    for file in [file, &all] {
        let printed = succeed(&["--config", file, "serve", "--print-config"]);
        assert!(printed.contains("\nport: 8080\n"), "{printed}");
    }
}
