//! Low-rank adapters of the reference files: numbers, choice by requests, loading while serving.

#![cfg(unix)]

use crate::gannet::{check_error, path, run, succeed, until};
use crate::serving::Server;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The adapter of Llama among the reference files, and its base.
fn llama() -> Option<(PathBuf, String)> {
    let adapter = fixtures::find("lora/llama3_r4")?;
    let base = fixtures::find("models/llama3")?;
    Some((adapter, base.to_str().unwrap().to_owned()))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn every_reference_adapter_agrees_with_its_reference_outputs_in_every_form() {
    let Some(folder) = fixtures::find("lora") else { return };
    let mut checked = 0;
    for entry in folder.read_dir().unwrap() {
        let adapter = entry.unwrap().path();
        let reference = std::fs::read_to_string(adapter.join("reference.json")).unwrap();
        let reference: Value = serde_json::from_str(&reference).unwrap();
        let base = format!("models/{}", reference["base"].as_str().unwrap());
        let base = fixtures::find(&base).expect("the base of the adapter");
        for form in [adapter.clone(), adapter.join("adapter.gguf")] {
            for device in ["cpu", "reference"] {
                let args = ["verify", text(&base), "--lora", text(&form), "--device", device];
                succeed(&args);
            }
            checked += 1;
        }
        // Half of the adapter gives other numbers.
        let half = format!("{}=0.5", text(&adapter));
        let file = adapter.join("reference.json");
        let args = ["verify", text(&base), "--lora", &half, "--reference", text(&file)];
        assert_eq!(run(&args).code, Some(1), "{half}");
    }
    assert!(checked >= 4, "{checked} adapters");
}

#[test]
fn an_adapter_of_another_model_is_refused_with_tensor_and_shapes() {
    let (Some((_, base)), Some(other)) = (llama(), fixtures::find("lora/qwen3_r4")) else { return };
    let refused = |adapter: &str| run(&["run", "-m", &base, "--lora", adapter, "x"]);
    check_error(&refused(text(&other)), "expected shape [4, 192], found [4, 256]");
    let file = other.join("adapter.gguf");
    check_error(&refused(text(&file)), "general.architecture: expected llama, found qwen3");
    check_error(&refused("/no/such"), "/no/such");
    check_error(&refused(&base), "expected adapter_model.safetensors");
}

/// A server of the base with a folder of the adapter under two names.
fn serve(name: &str, more: &[&str]) -> Option<Server> {
    let (adapter, base) = llama()?;
    let folder = path(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink(&adapter, format!("{folder}/one")).unwrap();
    let (from, to) = (adapter.join("adapter.gguf"), format!("{folder}/two.gguf"));
    std::os::unix::fs::symlink(from, to).unwrap();
    let args = ["-m", &base, "--lora-dir", &folder, "--mode", "exact", "--kv-dir", "off"];
    Some(Server::start(&[&args[..], more].concat()))
}

const PROMPT: &str = "plementation for built-in type";

fn complete(server: &Server, more: &Value) -> Value {
    let mut body = json!({ "prompt": PROMPT, "temperature": 0, "max_tokens": 12 });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server.answer("POST /v1/completions", &body)
}

fn said(server: &Server, more: &Value) -> String {
    let answer = complete(server, more);
    answer["choices"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[test]
fn requests_choose_adapters_by_model_and_by_number() {
    let Some(server) = serve("loras-chosen", &[]) else { return };
    let base = said(&server, &json!({}));
    let adapted = said(&server, &json!({ "model": "one" }));
    assert!(adapted != base);
    for same in ["llama3:one", "two", "llama3:two"] {
        assert_eq!(said(&server, &json!({ "model": same })), adapted, "{same}");
    }
    for same in ["llama3", "llama3:latest", "anything"] {
        assert_eq!(said(&server, &json!({ "model": same })), base, "{same}");
    }
    assert_eq!(complete(&server, &json!({ "model": "llama3:one" }))["model"], "one");
    let lora = |list: Value| said(&server, &json!({ "lora": list }));
    assert_eq!(lora(json!([{"id": 1, "scale": 1.0}])), adapted);
    assert_eq!(lora(json!([{"id": 0, "scale": 0.5}, {"id": 1, "scale": 0.5}])), adapted);
    assert_eq!(lora(json!([])), base);
    assert_eq!(lora(json!([{"id": 0, "scale": 0.0}])), base);
    let chat = json!({ "messages": [{"role": "user", "content": "a"}], "model": "two",
        "max_tokens": 2 });
    assert_eq!(server.answer("POST /v1/chat/completions", &chat)["model"], "two");
    for (more, message) in [
        (json!({ "model": "llama3:three" }), "no such model: llama3:three"),
        (json!({ "lora": [{"id": 2, "scale": 1.0}] }), "no such adapter: 2"),
        (json!({ "lora": [{"id": 0}] }), "lora[0].scale"),
        (json!({ "lora": [{"id": -1, "scale": 1.0}] }), "lora[0].id"),
        (json!({ "lora": [{"id": 0, "scale": 1e30}] }), "expected a scale"),
        (json!({ "lora": 3 }), "lora"),
        (json!({ "model": "one", "lora": [] }), "lora"),
        (json!({ "lora": [{"id": 0, "scale": 1.0}, {"id": 0, "scale": 1.0}] }), "twice"),
    ] {
        let answer = complete(&server, &more);
        let found = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(found.contains(message), "{found}");
    }
    let models = server.answer("GET /v1/models", &Value::Null);
    let ids: Vec<_> = models["data"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    assert_eq!(ids, ["llama3", "one", "two"]);
    assert_eq!(models["data"][1]["parent"], "llama3");
    assert_eq!(server.answer("GET /v1/models/llama3:two", &Value::Null)["id"], "two");
    let tags = server.answer("GET /api/tags", &Value::Null)["models"].take();
    let two = tags.as_array().unwrap().iter().find(|tag| tag["name"] == "two").unwrap();
    assert_eq!(two["details"]["parent_model"], tags[0]["name"]);
    // Nothing changes without --allow-lora-updates.
    for path in ["/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/lora-adapters"] {
        let answer = server.request(&format!("POST {path}"), "{}");
        assert!(answer.starts_with("HTTP/1.1 501"), "{answer}");
    }
}

#[test]
fn adapters_come_and_go_while_the_server_runs() {
    let more = ["--allow-lora-updates", "--max-loras", "3"];
    let (Some(server), Some((adapter, _))) = (serve("loras-changed", &more), llama()) else {
        return;
    };
    let adapted = said(&server, &json!({ "model": "one" }));
    let base = said(&server, &json!({}));
    let post = |path: &str, body: Value| server.request(&format!("POST {path}"), &body.to_string());
    let load = |name: &str, path: &Path| {
        post("/v1/load_lora_adapter", json!({ "lora_name": name, "lora_path": text(path) }))
    };
    let check = |answer: String, status: u16, message: &str| {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        assert!(answer.contains(message), "{answer}");
    };
    check(load("one", &adapter), 400, "one: the name is taken");
    check(load("llama3", &adapter), 400, "the name is taken");
    check(load("x", Path::new("/no/such")), 400, "/no/such");
    check(load("three", &adapter), 200, "three");
    assert_eq!(said(&server, &json!({ "model": "llama3:three" })), adapted);
    check(load("four", &adapter), 400, "at most 3 adapters");
    let unload = |name: &str| post("/v1/unload_lora_adapter", json!({ "lora_name": name }));
    check(unload("three"), 200, "three");
    check(unload("three"), 404, r#""param":"lora_name""#);
    // A name that was an adapter's never means the base.
    let gone = complete(&server, &json!({ "model": "three" }));
    assert_eq!(gone["error"]["code"], "model_not_found", "{gone}");
    check(post("/lora-adapters", json!([{"id": 0, "scale": 1.0}])), 200, "true");
    assert_eq!(said(&server, &json!({})), adapted);
    assert_eq!(said(&server, &json!({ "lora": [] })), base);
    let listed = server.answer("GET /lora-adapters", &Value::Null);
    let scales: Vec<_> = listed.as_array().unwrap().iter().map(|it| &it["scale"]).collect();
    assert_eq!(scales, [&json!(1.0), &json!(0.0)]);
}

#[test]
fn an_adapter_is_replaced_under_its_name_without_the_prefixes_of_the_old_one() {
    let more = ["--allow-lora-updates", "--max-loras", "2"];
    let (Some(server), Some((adapter, _))) = (serve("loras-replaced", &more), llama()) else {
        return;
    };
    let weak = path("lora-weak");
    let _ = std::fs::remove_dir_all(&weak);
    std::fs::create_dir_all(&weak).unwrap();
    std::fs::copy(
        adapter.join("adapter_model.safetensors"),
        format!("{weak}/adapter_model.safetensors"),
    )
    .unwrap();
    let config = std::fs::read_to_string(adapter.join("adapter_config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["lora_alpha"] = json!(1e-6);
    std::fs::write(format!("{weak}/adapter_config.json"), config.to_string()).unwrap();
    let load = |name: &str, path: &str, in_place: bool| {
        let body = json!({"lora_name": name, "lora_path": path, "load_inplace": in_place});
        server.request("POST /v1/load_lora_adapter", &body.to_string())
    };
    let base = said(&server, &json!({}));
    let adapted = said(&server, &json!({ "model": "one" }));
    assert!(load("one", &weak, true).starts_with("HTTP/1.1 200"));
    assert_eq!(said(&server, &json!({ "model": "one" })), base);
    assert_eq!(said(&server, &json!({ "model": "two" })), adapted);
    assert_eq!(said(&server, &json!({ "lora": [{"id": 0, "scale": 1.0}] })), base);
    assert!(load("one", text(&adapter), true).starts_with("HTTP/1.1 200"));
    assert_eq!(said(&server, &json!({ "model": "one" })), adapted);
    for (name, in_place) in [("one", false), ("llama3", true)] {
        let answer = load(name, text(&adapter), in_place);
        assert!(
            answer.starts_with("HTTP/1.1 400") && answer.contains(r#""param":"lora_name""#),
            "{answer}"
        );
    }
    let full = load("three", text(&adapter), true);
    assert!(full.starts_with("HTTP/1.1 400") && full.contains("at most 2 adapters"), "{full}");
}

#[test]
fn answers_of_adapters_in_company_come_out_the_same_alone() {
    let folder = path("lora-traces");
    let _ = std::fs::remove_dir_all(&folder);
    let more = ["--trace-dir", &folder, "--parallel", "4", "--speculate", "ngram:3"];
    let (Some(server), Some((adapter, base))) = (serve("loras-traced", &more), llama()) else {
        return;
    };
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let (server, model) = (&server, ["one", "llama3", "two"][seed % 3]);
            let more = json!({ "model": model, "temperature": 1, "seed": seed, "max_tokens": 40 });
            scope.spawn(move || complete(server, &more));
        }
    });
    let mut traces = Vec::new();
    until("six traces are there", || {
        let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        traces = files.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
        traces.len() == 6
    });
    server.end("-TERM");
    let adapted = |path: &PathBuf| {
        let trace: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        trace["settings"]["adapters"].is_string()
    };
    let (with, without): (Vec<_>, Vec<_>) = traces.into_iter().partition(adapted);
    assert_eq!((with.len(), without.len()), (4, 2));
    let replay = |files: &[PathBuf], more: &[&str]| {
        let files = files.iter().map(|file| text(file));
        let args = ["replay", "-m", &base].into_iter().chain(files);
        run(&args.chain(more.iter().copied()).collect::<Vec<_>>())
    };
    assert_eq!(replay(&without, &[]).code, Some(0));
    let same = replay(&with, &["--lora", text(&adapter), "--chunk", "3"]);
    assert_eq!(same.code, Some(0), "{}", same.err);
    check_error(&replay(&with, &[]), "adapters");
}
