//! DeepSeek V4 without a chat template of its own: efforts in the words of every protocol.

use crate::harness::{Server, error};
use crate::support::{scripted_family, tokenizer};
use serde_json::{Value, json};
use server::ServerOptions;

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const OLLAMA: &str = "/api/chat";
/// Tokens from which `max` is a prefix of its own.
const LONG: usize = 393_216;

fn server(context: usize) -> Server {
    Server::serve(scripted_family("deepseek_v4", context, Vec::new()), ServerOptions::default())
}

/// A body for `path` that asks "q", with `extra` members.
fn body(path: &str, extra: &Value) -> Value {
    let messages = json!([{"role": "user", "content": "q"}]);
    let mut body = match path {
        RESPONSES => json!({"model": "test/model", "input": "q"}),
        MESSAGES => json!({"model": "test/model", "max_tokens": 9, "messages": messages}),
        _ => json!({"model": "test/model", "messages": messages, "stream": false}),
    };
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// The prompt of a request.
async fn prompt(context: usize, path: &str, extra: &Value) -> String {
    let server = server(context);
    let response = server.post(path, &body(path, extra)).await;
    assert_eq!(response.status(), 200, "{path} {extra}");
    let (report, _) = server.report().await;
    tokenizer().decode(&report.request.prompt, false)
}

/// The member that says an effort.
fn effort(path: &str, level: &str) -> Value {
    match path {
        RESPONSES => json!({"reasoning": {"effort": level}}),
        MESSAGES => json!({"output_config": {"effort": level}}),
        OLLAMA => json!({"think": level}),
        _ => json!({"reasoning_effort": level}),
    }
}

#[tokio::test]
async fn every_protocol_says_how_hard_to_think() {
    let base = |think: &str| format!("<|endoftext|><｜User｜>q<｜Assistant｜>{think}");
    for path in [CHAT, RESPONSES, MESSAGES, OLLAMA, "/chat/completions"] {
        assert_eq!(prompt(LONG, path, &json!({})).await, base("</think>"), "{path}");
        for level in ["low", "high", "xhigh"] {
            let found = prompt(LONG, path, &effort(path, level)).await;
            assert_eq!(found, base("<think>"), "{path} {level}");
        }
        if path != MESSAGES {
            let (none, least) = (effort(path, "none"), effort(path, "minimal"));
            assert_eq!(prompt(LONG, path, &none).await, base("</think>"), "{path}");
            assert_eq!(prompt(LONG, path, &least).await, base("<think>"), "{path}");
        }
        let most = effort(path, "max");
        let whole = prompt(LONG, path, &most).await;
        assert!(whole.starts_with("<|endoftext|>Reasoning Effort: Absolute"), "{path}: {whole}");
        assert!(whole.ends_with("\n\n<｜User｜>q<｜Assistant｜><think>"), "{path}: {whole}");
        assert_eq!(prompt(LONG - 1, path, &most).await, base("<think>"), "{path}");
    }
    let off = json!({"thinking": {"type": "disabled"}, "output_config": {"effort": "max"}});
    assert_eq!(prompt(LONG, MESSAGES, &off).await, base("</think>"));
    let on = json!({"thinking": {"type": "enabled", "budget_tokens": 5}, "max_tokens": 9});
    assert_eq!(prompt(LONG, MESSAGES, &on).await, base("<think>"));
    assert_eq!(prompt(LONG, OLLAMA, &json!({"think": true})).await, base("<think>"));
    assert_eq!(prompt(LONG, OLLAMA, &json!({"think": false})).await, base("</think>"));
}

#[tokio::test]
async fn unknown_efforts_are_refused_by_the_name_of_the_protocol() {
    for (path, param) in [(CHAT, "reasoning_effort"), (RESPONSES, "reasoning.effort")] {
        let server = server(4096);
        let problem =
            error(server.post(path, &body(path, &effort(path, "a lot"))).await, 400).await;
        assert_eq!(problem["param"], param, "{problem}");
        let message = problem["message"].as_str().unwrap();
        assert!(message.contains("minimal, low, medium, high, xhigh, max"), "{message}");
    }
}

#[tokio::test]
async fn the_built_in_template_is_told_and_takes_tools() {
    let server = server(4096);
    let props: Value = server.get("/props").await.json().await.unwrap();
    assert!(props["chat_template"].as_str().unwrap().contains("DSML"), "{props}");
    let show = server.post("/api/show", &json!({"model": "test/model"})).await;
    let show: Value = show.json().await.unwrap();
    for capability in ["tools", "thinking"] {
        let known = show["capabilities"].as_array().unwrap();
        assert!(known.contains(&capability.into()), "{show}");
    }
}
