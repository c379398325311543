//! Traces that `serve` writes, and `replay`, which computes them again.

#![cfg(unix)]

use crate::gannet::{check_error, file, path, run, succeed, until};
use crate::serving::Server;
use serde_json::{Value, json};

/// Waits for `count` trace files in `folder`.
fn traces(folder: &str, count: usize) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    until(&format!("{count} traces are in {folder}"), || {
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        found = files.filter(|path| path.extension().unwrap() == "json").collect();
        found.len() == count
    });
    found
}

#[test]
fn answers_given_in_company_come_out_the_same_alone() {
    let folder = path("traces");
    let _ = std::fs::remove_dir_all(&folder);
    let args = ["--trace-dir", &folder, "--parallel", "4", "--speculate", "ngram:3"];
    let server = Server::start(&[&args[..], &["--kv-memory", "300KiB", "--ctx", "64"]].concat());
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let server = &server;
            scope.spawn(move || {
                let prompt = format!("What is the opposite of {}?", ["hot", "big"][seed % 2]);
                let body = json!({ "prompt": prompt, "max_tokens": 30, "seed": seed, "n": 2 });
                let answer = server.request("POST /v1/completions", &body.to_string());
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            });
        }
    });
    let files = traces(&folder, 12);
    server.end("-TERM");
    let report = succeed(&["replay", &folder, "--json", "--threads", "1", "--chunk", "5"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["traces"], &report["same"]), (&json!(12), &json!(12)), "{report}");
    one_other_bit_is_found(&files[0]);
}

fn one_other_bit_is_found(trace: &std::path::Path) {
    let mut altered: Value = serde_json::from_slice(&std::fs::read(trace).unwrap()).unwrap();
    altered["logits"][2] = json!("0123456789abcdef");
    let altered = file("altered.json", altered.to_string());
    let ended = run(&["replay", &altered]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.out.contains("after 2 tokens: logits 0123456789abcdef then"), "{ended:?}");
    assert!(ended.out.contains("0 of 1 traces"), "{ended:?}");
}

#[test]
fn what_is_no_trace_or_of_another_model_is_refused_by_name() {
    let broken = file("broken-trace.json", "{\"version\": 1}");
    check_error(&run(&["replay", &broken]), "broken-trace.json");
    check_error(&run(&["replay", &path("no-such-trace.json")]), "no-such-trace.json");
}
