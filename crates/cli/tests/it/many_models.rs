//! `serve --models`: many models in one server.

#![cfg(unix)]

use crate::gannet::{check_error, file, path, run, succeed, tiny, until};
use crate::serving::Server;
use serde_json::{Value, json};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Another model of small random weights.
static GUEST: LazyLock<String> = LazyLock::new(|| {
    succeed(&["synth", "tiny-qwen3", "--force", "-o", &path("guest"), "--seed", "8"]);
    path("guest")
});

/// A file that lists two models of small random weights, and the built-in one.
fn list() -> String {
    let models = json!({"models": [
        {"name": "steady", "model": tiny(), "ctx": 256, "temp": 0},
        {"name": "guest", "path": *GUEST, "kv_memory": "1MiB", "keep-alive": "1h"},
        {"model": "builtin", "alias": ["default", "tiny"]},
    ]});
    file("models.yaml", models.to_string())
}

/// The tokens of a continuation with their log probabilities.
fn computed(server: &Server, model: &str) -> Value {
    let body = json!({"model": model, "prompt": "The bird is", "max_tokens": 24, "logprobs": 3,
        "seed": 7, "temperature": 0.9, "ignore_eos": true});
    let answer = server.answer("POST /v1/completions", &body);
    assert_eq!(answer["model"], model, "{answer}");
    answer["choices"][0].clone()
}

fn states(server: &Server) -> Vec<String> {
    let list = server.answer("GET /v1/models", &Value::Null);
    let state = |model: &Value| model["status"]["value"].as_str().unwrap().to_owned();
    list["data"].as_array().unwrap().iter().map(state).collect()
}

#[test]
fn a_model_that_comes_and_goes_changes_no_bits_of_others() {
    let server = Server::start(&["--models", &list()]);
    let [alone, guest] = ["steady", "guest"].map(|name| {
        let computed = computed(&server, name);
        server.answer("POST /models/unload", &json!({"model": name}));
        computed
    });
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..6 {
                assert_eq!(computed(&server, "guest"), guest);
                server.answer("POST /models/unload", &json!({"model": "guest"}));
            }
            ended.store(true, Ordering::Relaxed);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    assert_eq!(computed(&server, "steady"), alone);
                }
            });
        }
    });
    assert_eq!(states(&server), ["loaded", "unloaded", "unloaded"]);
}

#[test]
fn settings_of_models_apply_over_settings_of_the_command() {
    let server = Server::start(&["--models", &list(), "--ctx", "128", "--keep-alive", "0.2"]);
    let context = |model: &str| {
        computed(&server, model);
        server.answer(&format!("GET /v1/models/{model}"), &Value::Null)["context_length"].clone()
    };
    assert_eq!((context("steady"), context("guest")), (json!(256), json!(128)));
    until("the first is unloaded", || states(&server)[0] == "unloaded");
    assert_eq!(states(&server)[1], "loaded");
    let body = json!({"model": "default", "messages": [
        {"role": "user", "content": "What is the capital of France?"}]});
    let answer = server.answer("POST /v1/chat/completions", &body);
    assert!(answer["choices"][0]["message"]["content"].as_str().unwrap().contains("Paris"));
}

#[test]
fn wrong_lists_are_refused_by_place() {
    let serve = |models: Value| {
        let list = file("wrong-models.yaml", json!({"models": models}).to_string());
        run(&["serve", "--port", "0", "--models", &list])
    };
    let refused = |models: Value, expected: &str| check_error(&serve(models), expected);
    refused(json!([{"model": "x", "tempo": 1}]), "tempo: no such setting of a model");
    refused(json!([{"model": "x", "temp": "warm"}]), "invalid value 'warm'");
    refused(json!([{"model": "x"}, {"model": "y", "alias": "x"}]), "x: the name is taken");
    let missing = serve(json!([{"model": "no/such.gguf", "pinned": true}]));
    assert_eq!(missing.code, Some(1));
    assert!(missing.err.contains("error: the model no/such.gguf cannot be loaded"), "{missing:?}");
    let both = run(&["serve", "--models", &list(), "-m", "x"]);
    assert_eq!(both.code, Some(2), "{both:?}");
}
