//! Receipts that `serve` and `run` give, and `receipt verify`, which computes their answers again.

use crate::gannet::{Ended, check_error, command, file, path, run, succeed, tiny};
use crate::serving::Server;
use kernels::{ISA_VARIABLE, Isa};
use serde_json::{Value, json};
use std::path::Path;

/// What `receipt verify` says as JSON, and its exit code.
fn verify(receipt: &str, args: &[&str]) -> (Option<i32>, Value) {
    verify_with(*Isa::available().last().unwrap(), receipt, args)
}

fn verify_with(isa: Isa, receipt: &str, args: &[&str]) -> (Option<i32>, Value) {
    let mut verify = command();
    verify.env(ISA_VARIABLE, isa.name());
    verify.args(["receipt", "verify", receipt, "--json"]).args(args);
    let ended = Ended::from(verify.output().unwrap());
    let report = serde_json::from_str(&ended.out);
    (ended.code, report.unwrap_or_else(|error| panic!("{error}: {ended:?}")))
}

/// The parts that differ.
fn parts(report: &Value) -> Vec<&str> {
    let differences = report["differences"].as_array().unwrap();
    differences.iter().map(|difference| difference["part"].as_str().unwrap()).collect()
}

fn written(name: &str, receipt: &Value) -> String {
    file(name, receipt.to_string())
}

/// The JSON of each event of a stream.
fn events(response: &str) -> Vec<Value> {
    let data = response.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

/// Requests of every protocol: the route, and the body without its seed.
fn requests() -> Vec<(&'static str, Value)> {
    let messages = json!([{ "role": "user", "content": "What is the opposite of hot?" }]);
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
    vec![
        ("/v1/chat/completions", json!({ "messages": messages, "max_tokens": 12 })),
        ("/v1/chat/completions", json!({ "messages": messages, "stop": ["cold"] })),
        (
            "/v1/chat/completions",
            json!({ "messages": messages, "max_tokens": 9, "response_format": format }),
        ),
        ("/v1/completions", json!({ "prompt": "The capital of France is", "max_tokens": 7 })),
        ("/v1/responses", json!({ "input": "What is 3 + 4?", "max_output_tokens": 20 })),
        ("/v1/messages", json!({ "messages": messages, "max_tokens": 6 })),
        ("/api/chat", json!({ "model": "tiny", "messages": messages, "stream": false })),
        ("/completion", json!({ "prompt": "The capital of France is", "n_predict": 5 })),
    ]
}

#[test]
fn a_receipt_verifies_anywhere() {
    let key = file("receipt.key", [7; 32]);
    for (at, isa) in [Isa::SCALAR, *Isa::available().last().unwrap()].into_iter().enumerate() {
        let args = ["--receipt-key", &key, "--receipts", "--parallel", "4", "--bits", "portable"];
        let server = Server::start_with(isa, &args);
        let public = server.answer("GET /v1/receipts/key", &json!(null))["key"].clone();
        for (number, (route, body)) in requests().into_iter().enumerate() {
            let name = format!("{route} {body} of {isa:?}");
            let answer = server.answer(&format!("POST {route}"), &body);
            let receipt = &answer["receipt"];
            assert_eq!(receipt["signature"]["key"], public, "{name}: {answer}");
            let receipt = written(&format!("receipt-{at}-{number}.json"), receipt);
            let request = file(&format!("request-{at}-{number}.json"), body.to_string());
            for other in [*Isa::available().first().unwrap(), *Isa::available().last().unwrap()] {
                let args = ["--request", &request, "--url", route];
                let (code, report) = verify_with(other, &receipt, &args);
                assert_eq!(code, Some(0), "{name} with {other:?}: {report}");
                assert_eq!(report["signed_by"], public, "{name}");
                assert!(report["computed_tokens"].as_u64() > Some(0), "{name}: {report}");
            }
        }
        server.end("-TERM");
    }
}

#[test]
fn choices_streams_and_prompts_of_ids_have_receipts() {
    let server = Server::start(&["--parallel", "3", "--speculate", "ngram:3"]);
    let body = json!({ "prompt": [1, 5, 9, 200], "max_tokens": 8, "n": 3, "receipt": true });
    let response = server.request("POST /v1/completions", &body.to_string());
    let (head, answer) = response.split_once("\r\n\r\n").unwrap();
    let answer: Value = serde_json::from_str(answer).unwrap();
    let receipts = answer["receipts"].as_array().unwrap();
    let header = head.lines().find_map(|line| line.strip_prefix("x-gannet-receipt: ")).unwrap();
    assert_eq!((receipts.len(), header.split(',').count()), (3, 3), "{header}");
    let ids = file("prompt.ids", "[1, 5, 9, 200]");
    let other = file("other.ids", "1 5 9 201");
    for (at, receipt) in receipts.iter().enumerate() {
        let receipt = written(&format!("choice-{at}.json"), receipt);
        let (code, report) = verify(&receipt, &["--prompt-ids", &ids]);
        assert_eq!((code, &report["verdict"]), (Some(0), &json!("same")), "{report}");
        assert_eq!(report["signed_by"], json!(null));
        let (code, report) = verify(&receipt, &["--prompt-ids", &other]);
        assert_eq!((code, parts(&report)), (Some(1), vec!["prompt"]), "{report}");
        assert_eq!(report["computed_tokens"], json!(null));
    }
    let body = json!({ "prompt": "The", "max_tokens": 3, "stream": true, "receipt": true });
    let events = events(&server.request("POST /v1/completions", &body.to_string()));
    let with: Vec<_> = events.iter().filter(|event| event["receipt"].is_object()).collect();
    assert_eq!(with.len(), 1, "{events:?}");
    assert_eq!(with[0]["receipt"]["answer"]["ids"]["tokens"], 3);
    let none = server.answer("POST /v1/completions", &json!({ "prompt": "The", "max_tokens": 3 }));
    assert!(none.get("receipt").is_none(), "{none}");
    let wrong = server.request("POST /v1/completions", r#"{"prompt": "The", "receipt": 1}"#);
    assert!(wrong.starts_with("HTTP/1.1 400") && wrong.contains("receipt"), "{wrong}");
    let no_key = server.request("GET /v1/receipts/key", "");
    assert!(no_key.starts_with("HTTP/1.1 404") && no_key.contains("no_receipt_key"), "{no_key}");
    server.end("-TERM");
}

/// A copy of the repository's model in the folder `name`.
fn copied(name: &str) -> String {
    let folder = path(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model")).unwrap() {
        let entry = entry.unwrap();
        let is_gguf = entry.path().extension().is_some_and(|end| end == "gguf");
        if !is_gguf {
            std::fs::copy(entry.path(), Path::new(&folder).join(entry.file_name())).unwrap();
        }
    }
    folder
}

/// The receipt of an answer by `folder`, and the file of its prompt.
fn receipt_of(folder: &str, name: &str) -> (String, String) {
    let receipt = path(name);
    let args = ["run", "--raw", "The capital of France is", "-m", folder, "--max-tokens", "6"];
    let sampling = ["--temp", "4", "--top-p", "1", "--seed", "5", "--min-tokens", "4"];
    succeed(&[&args[..], &sampling, &["--receipt", &receipt, "--force"]].concat());
    let request = json!({
        "prompt": "The capital of France is",
        "max_tokens": 6,
        "temperature": 4,
        "top_p": 1,
        "min_tokens": 4,
    });
    (receipt, file("capital.json", request.to_string()))
}

#[test]
fn any_changed_byte_of_a_receipt_or_model_fails() {
    let folder = copied("receipt-model");
    let (receipt, request) = receipt_of(&folder, "capital-receipt.json");
    let (code, report) = verify(&receipt, &["-m", &folder, "--request", &request]);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(verify(&receipt, &["-m", &folder]).0, Some(0));
    let check = |name: &str, change: &dyn Fn(&mut Vec<u8>), expected: &str| {
        let file = Path::new(&folder).join(name);
        let before = std::fs::read(&file).unwrap();
        let mut bytes = before.clone();
        change(&mut bytes);
        std::fs::write(&file, bytes).unwrap();
        let (code, report) = verify(&receipt, &["-m", &folder, "--request", &request]);
        assert_eq!(code, Some(1), "{name}: {report}");
        assert!(parts(&report).contains(&expected), "{name}: {report}");
        std::fs::write(&file, before).unwrap();
    };
    let flip = |bytes: &mut Vec<u8>| {
        let last = bytes.len() - 3;
        bytes[last] ^= 1;
    };
    check("model.safetensors", &flip, "weights");
    check("chat_template.jinja", &|bytes| bytes.push(b'x'), "template");
    let theta = |bytes: &mut Vec<u8>| {
        let mut config: Value = serde_json::from_slice(bytes).unwrap();
        config["rms_norm_eps"] = json!(1e-4);
        *bytes = config.to_string().into_bytes();
    };
    check("config.json", &theta, "checkpoint");
    changed_receipts(&receipt, &folder, &request);
}

fn changed_receipts(receipt: &str, folder: &str, request: &str) {
    let whole: Value = serde_json::from_slice(&std::fs::read(receipt).unwrap()).unwrap();
    let check = |pointer: &str, value: Value, expected: &str| {
        let mut changed = whole.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        let changed = written("changed-receipt.json", &changed);
        let (code, report) = verify(&changed, &["-m", folder, "--request", request]);
        assert_eq!(code, Some(1), "{pointer}: {report}");
        assert!(parts(&report).contains(&expected), "{pointer}: {report}");
    };
    let zeros = json!("0".repeat(64));
    check("/model/tokenizer", zeros.clone(), "tokenizer");
    check("/request/prompt/sha256", zeros.clone(), "prompt");
    check("/request/sampling/seed", json!(3), "answer");
    check("/request/sampling/top_k", json!(3), "top_k");
    check("/request/stop_ids", json!([]), "stop_ids");
    check("/answer/ids/sha256", zeros, "answer");
    check("/answer/logits/3", json!("0123456789abcdef"), "logits of token 3");
    check("/answer/finish", json!("other"), "finish");
    check("/settings/checkpoint", json!(format!("02{}", "0".repeat(32))), "checkpoint");
    let unchecked = |pointer: &str, value: Value, expected: &str| {
        let mut changed = whole.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        let changed = written("unchecked-receipt.json", &changed);
        let (code, report) = verify(&changed, &["-m", folder, "--request", request]);
        let reason = report["reason"].as_str().unwrap_or_default();
        assert_eq!((code, reason.contains(expected)), (Some(2), true), "{pointer}: {report}");
    };
    unchecked("/settings/arithmetic_version", json!(1), "version");
    unchecked("/settings/arithmetic", json!("wgpu-vulkan-x"), "wgpu-vulkan-x");
    unchecked("/receipt", json!(9), "expected version 1 of receipts, found 9");
    unchecked("/request/prompt", json!([1]), "expected a receipt");
}

#[test]
fn receipts_that_cannot_be_checked_say_why() {
    check_error(&run(&["run", "hi", "--receipt", "/nowhere/receipt.json"]), "/nowhere");
    let ended = run(&["receipt", "verify", "/nowhere/receipt.json"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.out.contains("cannot be checked here: ") && ended.out.contains("/nowhere"));
    let key = file("short.key", [7; 31]);
    let ended = run(&["serve", "--receipt-key", &key]);
    check_error(&ended, "--receipt-key: ");
    let (receipt, _) = receipt_of(&tiny(), "plain-receipt.json");
    let ended = run(&["receipt", "verify", &receipt, "-m", &tiny(), "--key", "00"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.out.contains("key differs: none in the receipt, 00 here"), "{ended:?}");
    assert!(ended.out.contains("not signed"), "{ended:?}");
    let mut signed: Value = serde_json::from_slice(&std::fs::read(&receipt).unwrap()).unwrap();
    let (key, value) = ("00".repeat(32), "00".repeat(64));
    signed["signature"] = json!({"algorithm": "ed25519", "key": key, "value": value});
    let wrong = written("wrong-signature.json", &signed);
    let ended = run(&["receipt", "verify", &wrong, "-m", &tiny()]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let out = &ended.out;
    assert!(out.starts_with("signature differs: ") && !out.contains("not signed"), "{ended:?}");
}
