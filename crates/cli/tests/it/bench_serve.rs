//! `bench-serve` against `serve`.

use crate::gannet::{check_error, command, run, succeed, until};
use crate::serving::Server;
use serde_json::Value;
use std::process::{Command, Stdio};

fn measure(server: &Server, args: &[&str]) -> Value {
    let args = [&["bench-serve", &server.address, "--json"], args].concat();
    serde_json::from_str(&succeed(&args)).unwrap()
}

#[test]
fn every_request_is_counted_with_its_tokens() {
    let server = Server::start(&[]);
    let load = ["-n", "6", "-c", "2", "--warmup", "2", "--prompt", "20", "--output", "5"];
    let more = ["--shared-prefix", "12", "--goodput", "ttft:60000,itl:60000"];
    let report = measure(&server, &[&load[..], &more].concat());
    let counts = ["completed", "failed", "unfinished", "short_answers", "uncounted_answers"];
    assert_eq!(counts.map(|name| report[name].as_u64().unwrap()), [6, 0, 0, 0, 0], "{report:#}");
    assert_eq!((&report["prompt_tokens"], &report["output_tokens"]), (&192.into(), &30.into()));
    assert_eq!((&report["good_requests"], &report["ended"]), (&6.into(), &"done".into()));
    let ttft = &report["ttft_ms"];
    assert!(ttft["p50"].as_f64() > Some(0.0) && ttft["p50"].as_f64() <= ttft["max"].as_f64());
    assert!(report["requests_per_second"].as_f64() > Some(0.0), "{report:#}");
}

#[test]
fn a_run_that_finds_its_prompts_in_the_cache_says_so() {
    let server = Server::start(&[]);
    let said = |seed: &str| {
        let load = ["-n", "4", "--prompt", "64", "--output", "2", "--seed", seed];
        let out = succeed(
            &[&["bench-serve", &server.address, "--shared-prefix", "32"], &load[..]].concat(),
        );
        out.contains("most of the prompts were in the server's cache: --seed")
    };
    assert_eq!([said("1"), said("1"), said("2")], [false, true, false]);
}

#[test]
fn chats_at_random_times_are_measured_too() {
    let server = Server::start(&["--api-key", "secret"]);
    let load = ["--endpoint", "chat", "-n", "4", "--rate", "200", "--prompt", "5-9"];
    let report = measure(&server, &[&load[..], &["--output", "3", "--api-key", "secret"]].concat());
    assert_eq!((&report["completed"], &report["output_tokens"]), (&4.into(), &12.into()));
    assert!(report["late_ms"]["max"].is_number(), "{report:#}");
}

#[test]
fn a_load_that_is_refused_is_an_error_that_says_why() {
    let server = Server::start(&[]);
    let ended = run(&["bench-serve", &server.address, "-n", "2", "--prompt", "5000"]);
    check_error(&ended, "http 400");
    assert!(ended.out.contains("0 completed, 2 failed"), "{}", ended.out);
}

#[test]
fn other_machines_and_absent_servers_are_named() {
    check_error(&run(&["bench-serve", "http://192.0.2.7:80"]), "192.0.2.7");
    check_error(&run(&["bench-serve", "http://192.0.2.7:80"]), "--allow-remote");
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    check_error(&run(&["bench-serve", &address]), &address);
}

#[test]
fn ctrl_c_reports_what_was_measured() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("interrupted.svg").to_str().unwrap().to_owned();
    let mut command = command();
    command.args(["bench-serve", &server.address, "--json", "--rate", "1", "--svg", &plot]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The plot's file is there when signals are listened for.
    until("the plot is begun", || folder.path().read_dir().unwrap().next().is_some());
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), err.as_ref()), (Some(130), ""));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ended"], "interrupted");
    assert!(std::fs::read_to_string(&plot).unwrap().ends_with("</svg>\n"));
}
