//! Proxies that the environment names. Variables are those of a process, so that each test starts
//! itself again with others.

use crate::scripted::{PATIENCE, ScriptedServer};
use client::{RemoteServer, Wait};
use std::process::{Command, Output};

/// Says to a test which server it asks.
const ASKED: &str = "GANNET_CLIENT_TEST_ASKS";

/// Runs one test in a process with this proxy.
fn run(test: &str, proxy: &str, asked: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        command.env(name, proxy);
    }
    command.env_remove("NO_PROXY").env_remove("no_proxy").env(ASKED, asked);
    command.args(["--exact", test]).output().unwrap()
}

/// In the second process, asks the server that the first one names.
fn is_second() -> bool {
    let Ok(asked) = std::env::var(ASKED) else { return false };
    let server = RemoteServer::new(&asked, None).unwrap();
    assert_eq!(server.models(Wait::at_most(PATIENCE)).unwrap(), []);
    true
}

fn check(test: &str, proxy: &str, asked: &str) {
    let output = run(test, proxy, asked);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("1 passed"), "{shown}");
}

#[test]
fn the_environment_names_the_proxy_to_other_machines() {
    if !is_second() {
        let proxy = ScriptedServer::answering("200 OK", "application/json", "{\"data\": []}");
        let test = "proxies::the_environment_names_the_proxy_to_other_machines";
        check(test, &proxy.url, "http://a.example");
        let request = proxy.report().unwrap();
        assert!(request.starts_with("GET http://a.example/v1/models "), "{request}");
    }
}

#[test]
fn the_environment_names_no_proxy_to_this_machine() {
    if !is_second() {
        let server = ScriptedServer::answering("200 OK", "application/json", "{\"data\": []}");
        let test = "proxies::the_environment_names_no_proxy_to_this_machine";
        // Nothing listens at the address of the proxy.
        check(test, "http://127.0.0.1:1", &server.url);
        assert!(server.report().unwrap().starts_with("GET /v1/models "));
    }
}
