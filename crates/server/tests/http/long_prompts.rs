//! Bodies with far more text than the context holds, and compressed ones.

use crate::harness::{Server, chat_body, error, ok};
use crate::support::{Act, CONTEXT};
use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::Response;
use serde_json::{Value, json};
use server::ServerOptions;
use std::io::Write;

const CHAT: &str = "/v1/chat/completions";

/// Text of many parts.
fn text(times: usize) -> String {
    "hello world, ".repeat(times)
}

#[tokio::test]
async fn far_more_text_than_the_context_holds_is_refused_on_every_route() {
    let server = Server::start([Act::Say("x")]).await;
    let long = text(40_000);
    let messages = json!([{"role": "user", "content": &long}]);
    for (path, body) in [
        (CHAT, json!({"messages": messages})),
        ("/v1/completions", json!({"prompt": &long})),
        ("/v1/responses", json!({"input": &long})),
        ("/v1/messages", json!({"max_tokens": 1, "messages": messages})),
        ("/api/chat", json!({"messages": messages})),
        ("/api/generate", json!({"prompt": &long})),
        ("/completion", json!({"prompt": &long})),
        ("/v1/embeddings", json!({"input": ["a", &long]})),
    ] {
        let response = server.post(path, &body).await;
        assert_eq!(response.status(), 400, "{path}");
        let message = response.text().await.unwrap();
        assert!(message.contains("at least") || message.contains("too long"), "{path}: {message}");
    }
    let body = json!({"messages": messages});
    let refused = error(server.post(CHAT, &body).await, 400).await;
    assert_eq!(refused["code"], "context_length_exceeded");
    assert_eq!(refused["n_ctx"], CONTEXT);
    let found = refused["n_prompt_tokens"].as_u64().unwrap() as usize;
    assert!(found > CONTEXT && found < long.len(), "{found}");
    // Texts of systems count by their bytes, too, before they are rendered.
    let messages = json!([{"role": "system", "content": &long}, {"role": "user", "content": "hi"}]);
    let refused = error(server.post(CHAT, &json!({"messages": messages})).await, 400).await;
    assert!(refused["n_prompt_tokens"].as_u64().unwrap() as usize >= found, "{refused}");
    assert!(server.no_report());
}

#[tokio::test]
async fn more_texts_and_tools_than_the_context_has_tokens_are_refused() {
    let server = Server::start([Act::Say("x")]).await;
    let many = |item: Value| vec![item; CONTEXT + 1];
    let user = json!({"role": "user", "content": "a"});
    let tool = json!({"type": "function", "function": {"name": "f"}});
    let results = (0..=CONTEXT).flat_map(|at| {
        let id = at.to_string();
        let call = json!({"id": id, "type": "function", "function": {"name": "f"}});
        [
            json!({"role": "assistant", "tool_calls": [call]}),
            json!({"role": "tool", "tool_call_id": id, "content": "a"}),
        ]
    });
    for body in [
        json!({"messages": many(user.clone())}),
        json!({"messages": [{"role": "user", "content": many(json!({"type": "text", "text": "a"}))}]}),
        json!({"messages": [user], "tools": many(tool)[1..]}),
        json!({"messages": results.collect::<Vec<_>>()}),
    ] {
        let refused = error(server.post(CHAT, &body).await, 400).await;
        assert_eq!(refused["code"], "context_length_exceeded", "{refused}");
        assert_eq!(refused["n_prompt_tokens"], CONTEXT + 1, "{refused}");
    }
    // Of the parts of one prompt, none is tokenized after those that fill the context.
    let parts: Vec<Value> = std::iter::once(json!(1)).chain(many(json!("hello"))).collect();
    let response = server.post("/completion", &json!({ "prompt": parts })).await;
    assert!(response.text().await.unwrap().contains("at least"));
    assert!(server.no_report());
}

#[tokio::test]
async fn what_is_counted_names_the_member_that_is_too_long() {
    let server = Server::start([]).await;
    for (path, member, content) in [
        (
            "/v1/chat/completions/input_tokens",
            "messages",
            json!([{"role": "user", "content": text(60_000)}]),
        ),
        ("/v1/responses/input_tokens", "input", json!(text(60_000))),
    ] {
        let refused = error(server.post(path, &json!({ member: content })).await, 400).await;
        assert_eq!(refused["param"], member, "{refused}");
    }
}

#[tokio::test]
async fn what_the_context_does_not_hold_is_counted_to_its_end() {
    let server = Server::start([]).await;
    let path = "/v1/chat/completions/input_tokens";
    let count = async |times: usize| {
        let body = json!({"messages": [{"role": "user", "content": text(times)}]});
        ok(server.post(path, &body).await).await["input_tokens"].as_u64().unwrap()
    };
    let (one, two) = (count(1000).await, count(2000).await);
    assert_eq!(count(8000).await, one + 7 * (two - one));
    let tokens = async |times: usize| {
        let body = json!({"content": text(times)});
        ok(server.post("/tokenize", &body).await).await["tokens"].as_array().unwrap().clone()
    };
    let all = tokens(8000).await;
    assert!(all.starts_with(&tokens(1000).await) && all.len() as u64 > one, "{}", all.len());
}

#[tokio::test]
async fn texts_to_embed_are_cut_at_the_context() {
    let server = Server::start([]).await;
    let embed = async |times: usize| {
        let body = json!({"input": text(times), "truncate": true});
        ok(server.post("/v1/embeddings", &body).await).await["usage"]["prompt_tokens"].clone()
    };
    assert_eq!(embed(40_000).await, embed(1000).await);
}

/// The answer to a chat request whose body is this, encoded so.
async fn posted(server: &Server, coding: &str, body: Vec<u8>) -> Response {
    let request = server.client.post(server.url(CHAT)).header("content-encoding", coding);
    request.header("content-type", "application/json").body(body).send().await.unwrap()
}

fn gzip(body: &Value) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body.to_string().as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn compressed_bodies_are_read_within_the_limit_of_what_they_decode_to() {
    let options = ServerOptions { body_limit: 2000, ..ServerOptions::default() };
    let server = Server::start_with([Act::Say("x")], 4, options).await;
    ok(posted(&server, "gzip", gzip(&chat_body(json!({})))).await).await;
    let bomb = gzip(&chat_body(json!({"user": "a".repeat(5000)})));
    assert!(bomb.len() < 500);
    let refused = error(posted(&server, "gzip", bomb).await, 413).await;
    assert_eq!(refused["code"], "body_too_large");
    let plain = chat_body(json!({})).to_string().into_bytes();
    error(posted(&server, "gzip", plain.clone()).await, 400).await;
    let other = posted(&server, "br", plain.clone()).await;
    assert_eq!(other.headers()["accept-encoding"], "gzip, deflate, zstd");
    assert_eq!(error(other, 415).await["code"], "unsupported_content_encoding");
    ok(posted(&server, "identity", [b"\xef\xbb\xbf", &plain[..]].concat()).await).await;
}
