//! Traces that `serve` writes, and `replay`, which computes them again.

#![cfg(unix)]

use crate::gannet::{Ended, check_error, command, file, path, run, succeed, until};
use crate::serving::Server;
use kernels::{ISA_VARIABLE, Isa};
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

/// Bits that every CPU computes: those of a quantised model, and of BF16 weights where they are
/// asked for.
#[test]
fn a_trace_repeats_on_another_instruction_set() {
    let whole = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
    for (name, model) in [("bytes", "builtin"), ("floats", whole)] {
        for by in [Isa::SCALAR, *Isa::available().last().unwrap()] {
            let folder = path(&format!("traces-{name}-{}", by.name()));
            let _ = std::fs::remove_dir_all(&folder);
            let args = ["-m", model, "--bits", "portable", "--trace-dir", &folder];
            let server = Server::start_with(by, &args);
            let body =
                json!({ "prompt": "What is the opposite of hot?", "max_tokens": 9, "seed": 4 });
            server.answer("POST /v1/completions", &body);
            traces(&folder, 1);
            server.end("-TERM");
            for isa in Isa::available() {
                let mut again = command();
                again.env(ISA_VARIABLE, isa.name()).args(["replay", &folder, "-m", model]);
                let ended = Ended::from(again.output().unwrap());
                assert_eq!(ended.code, Some(0), "{name} of {by:?} with {isa:?}: {ended:?}");
            }
        }
    }
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

/// Requests whose answers are constrained: by formats, by forced and strict calls, and by a budget
/// of reasoning.
fn constrained() -> Vec<(&'static str, Value)> {
    let messages = json!([{ "role": "user", "content": "What is the capital of France?" }]);
    let chat = |more: Value| {
        let mut body = json!({ "messages": messages });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ("POST /v1/chat/completions", body)
    };
    let schema = json!({
        "type": "object",
        "properties": { "n": { "type": "integer" }, "city": { "enum": ["Paris", "Rome"] } },
        "required": ["n", "city"],
        "additionalProperties": false,
    });
    let tool = |strict: bool| {
        let function = json!({ "name": "find", "parameters": schema, "strict": strict });
        json!([{ "type": "function", "function": function }])
    };
    let format = json!({ "name": "answer", "schema": schema });
    let format = json!({ "type": "json_schema", "json_schema": format });
    let object = json!({ "type": "json_object" });
    vec![
        chat(json!({ "response_format": format })),
        chat(json!({ "response_format": object, "reasoning_budget": 3 })),
        chat(json!({ "guided_regex": "[a-d ]{3,9}!" })),
        chat(json!({ "guided_choice": ["yes", "no"] })),
        chat(json!({ "tools": tool(false), "tool_choice": "required" })),
        chat(json!({ "tools": tool(true) })),
        chat(json!({ "tools": tool(false) })),
        chat(json!({ "tools": tool(false), "response_format": format })),
        ("POST /v1/completions", json!({ "prompt": "x", "guided_grammar": "start: /[xyz ]{5}/" })),
        ("POST /v1/completions", json!({ "prompt": "x", "grammar": "root ::= [0-9]+ \"!\"" })),
    ]
}

#[test]
fn constrained_answers_come_out_the_same_by_the_constraints_in_their_traces() {
    let folder = path("constrained-traces");
    let _ = std::fs::remove_dir_all(&folder);
    // Free text before a call needs a token with which calls begin.
    let is_strict = |body: &Value| body["tools"][0]["function"]["strict"] == true;
    let dsml = Server::start(&["--trace-dir", &folder, "--tool-format", "dsml"]);
    let own = Server::start(&["--trace-dir", &folder]);
    let requests = constrained();
    for (seed, (head, body)) in requests.iter().enumerate() {
        let server = if is_strict(body) { &own } else { &dsml };
        let mut body = body.clone();
        let sampling = json!({ "seed": seed, "temperature": 0.9, "max_tokens": 40 });
        body.as_object_mut().unwrap().extend(sampling.as_object().unwrap().clone());
        let answer = server.request(head, &body.to_string());
        assert!(answer.starts_with("HTTP/1.1 200"), "{body}: {answer}");
    }
    let files = traces(&folder, requests.len());
    dsml.end("-TERM");
    own.end("-TERM");
    let report: Value = serde_json::from_str(&succeed(&["replay", &folder, "--json"])).unwrap();
    assert_eq!(report["same"], json!(requests.len()), "{report}");
    let read = |path| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
    let has_source = |trace: &Value| !trace["request"]["constraint"].is_null();
    // Tools without a constraint of their own have what ends reasoning after calls in it.
    assert_eq!(files.iter().map(read).filter(has_source).count(), requests.len());
    let mut old = files.iter().map(read).find(has_source).unwrap();
    old["request"].as_object_mut().unwrap().remove("constraint");
    let old = file("old-trace.json", old.to_string());
    check_error(&run(&["replay", &old]), "an earlier version wrote the trace");
}

#[test]
fn what_is_no_trace_or_of_another_model_is_refused_by_name() {
    let broken = file("broken-trace.json", "{\"version\": 3}");
    check_error(&run(&["replay", &broken]), "broken-trace.json: expected a trace");
    let earlier = file("earlier-trace.json", "{\"version\": 1}");
    check_error(&run(&["replay", &earlier]), "expected version 3 of traces, found 1");
    check_error(&run(&["replay", &path("no-such-trace.json")]), "no-such-trace.json");
}
