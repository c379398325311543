//! Limits of what callers may take, and of what bodies may be.

use crate::harness::{Server, chat_body, error, events, ok, until};
use crate::support::Act;
use reqwest::Response;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use server::{ApiKeys, RateLimits, ServerOptions};
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";

async fn server(rates: RateLimits, script: impl Into<Vec<Act>>) -> Server {
    let keys = ApiKeys::new(["one", "two"]).unwrap();
    let options = ServerOptions { rates, keys, ..ServerOptions::default() };
    Server::start_with(script, 16, options).await
}

async fn ask(server: &Server, key: &str, stream: bool) -> Response {
    let request = server.client.post(server.url(CHAT)).bearer_auth(key);
    request.json(&chat_body(json!({"stream": stream}))).send().await.unwrap()
}

fn number(headers: &HeaderMap, name: &str) -> u64 {
    headers[name].to_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn requests_beyond_the_rate_are_told_when_to_come_back() {
    let rates = RateLimits { requests: Some(2), ..RateLimits::default() };
    let server = server(rates, [Act::Say("x")]).await;
    for remaining in [1, 0] {
        let answer = ask(&server, "one", false).await;
        assert_eq!(number(answer.headers(), "x-ratelimit-limit-requests"), 2);
        assert_eq!(number(answer.headers(), "x-ratelimit-remaining-requests"), remaining);
        let reset = answer.headers()["x-ratelimit-reset-requests"].to_str().unwrap().to_owned();
        // Half of a minute's worth takes half a minute; of the second, some may be back already.
        assert!(remaining == 0 || reset == "30s", "{reset}");
        ok(answer).await;
    }
    let refused = ask(&server, "one", false).await;
    assert!((15..=30).contains(&number(refused.headers(), "retry-after")), "{refused:?}");
    assert_eq!(number(refused.headers(), "x-ratelimit-remaining-requests"), 0);
    let error = error(refused, 429).await;
    assert_eq!(
        (&error["type"], &error["code"]),
        (&json!("rate_limit_error"), &json!("rate_limit_exceeded"))
    );
    ok(ask(&server, "two", false).await).await;
}

#[tokio::test]
async fn looking_is_not_limited() {
    let rates = RateLimits { requests: Some(1), ..RateLimits::default() };
    let server = server(rates, []).await;
    for path in ["/v1/models", "/metrics", "/v1/stats", "/health", "/ready"] {
        for _ in 0..3 {
            let answer =
                server.client.get(server.url(path)).bearer_auth("one").send().await.unwrap();
            assert_eq!(answer.status(), 200, "{path}");
            assert!(!answer.headers().contains_key("x-ratelimit-limit-requests"));
        }
    }
}

#[tokio::test]
async fn tokens_of_prompt_and_answer_are_counted() {
    let rates = RateLimits { tokens: Some(60), ..RateLimits::default() };
    let server = server(rates, [Act::Say("hello there")]).await;
    let answer = ask(&server, "one", false).await;
    assert_eq!(number(answer.headers(), "x-ratelimit-limit-tokens"), 60);
    let started = Instant::now();
    let used = ok(answer).await["usage"]["total_tokens"].as_u64().unwrap();
    let mut taken = used;
    let refused = loop {
        let answer = ask(&server, "one", false).await;
        if answer.status() == 429 {
            break answer;
        }
        taken += used;
    };
    // One token comes back each second.
    let back = started.elapsed().as_secs() + 1;
    assert!((60..60 + used + back).contains(&taken), "{taken} by {used}");
    let wait = number(refused.headers(), "retry-after");
    assert!(wait <= taken - 59 && wait + back >= taken - 59, "{wait} after {taken}");
    assert!(error(refused, 429).await["message"].as_str().unwrap().contains("60 tokens"));
    ok(ask(&server, "two", false).await).await;
}

/// An answer of which `said` is heard is left, and counts as far as that.
async fn check_left(said: &'static str, extra: Value) {
    let rates = RateLimits { tokens: Some(240), ..RateLimits::default() };
    let server = server(rates, [Act::Say(said), Act::Pause(Duration::from_secs(30))]).await;
    let started = Instant::now();
    let mut body = chat_body(extra);
    body["stream"] = true.into();
    let request = server.client.post(server.url(CHAT)).bearer_auth("one");
    let mut answer = request.json(&body).send().await.unwrap();
    let mut heard = String::new();
    while heard.matches("data: ").count() < 20 {
        heard += str::from_utf8(&answer.chunk().await.unwrap().unwrap()).unwrap();
    }
    drop(answer);
    let (report, server) = server.report().await;
    let stats = server.client.get(server.url("/v1/stats?format=json")).bearer_auth("one");
    until("the client has left", async || {
        ok(stats.try_clone().unwrap().send().await.unwrap()).await["requests"]["clients_left"] == 1
    })
    .await;
    let next = ask(&server, "one", true).await;
    let remaining = number(next.headers(), "x-ratelimit-remaining-tokens");
    let back = started.elapsed().as_secs() * 240 / 60 + 2;
    let prompt = report.request.prompt.len() as u64;
    assert!(remaining + prompt + 15 < 240 + back, "{remaining} remain after {prompt} and 20");
}

#[tokio::test]
async fn an_answer_that_its_client_leaves_is_counted_as_far_as_it_was_heard() {
    check_left("some more text that is heard", json!({})).await;
    let call =
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"some more text that is heard";
    let tool = json!({"type": "function", "function": {"name": "f"}});
    check_left(call, json!({"tools": [tool]})).await;
}

#[tokio::test]
async fn texts_are_paid_for_though_their_client_leaves_the_others() {
    let rates = RateLimits { tokens: Some(100), ..RateLimits::default() };
    let server = server(rates, [Act::Pause(Duration::from_millis(40))]).await;
    let body = json!({"input": vec!["a".repeat(20); 50]});
    let request = server.client.post(server.url("/api/embed")).bearer_auth("one").json(&body);
    assert!(request.timeout(Duration::from_millis(400)).send().await.is_err());
    let next = ask(&server, "one", true).await;
    let remaining = number(next.headers(), "x-ratelimit-remaining-tokens");
    assert!(remaining < 90, "{remaining}");
}

#[tokio::test]
async fn a_background_response_takes_its_place_until_it_ends() {
    let rates = RateLimits { concurrent: Some(1), ..RateLimits::default() };
    let server = server(rates, [Act::Say("x"), Act::Pause(Duration::from_secs(30))]).await;
    let post = async |path: &str, body: Value| {
        let request = server.client.post(server.url(path)).bearer_auth("one");
        ok(request.json(&body).send().await.unwrap()).await
    };
    let asked = json!({"model": "any", "input": "hi", "background": true});
    let response = post("/v1/responses", asked).await;
    assert_eq!(ask(&server, "one", true).await.status(), 429);
    let cancel = format!("/v1/responses/{}/cancel", response["id"].as_str().unwrap());
    assert_eq!(post(&cancel, json!({})).await["status"], "cancelled");
    assert_eq!(ask(&server, "one", true).await.status(), 200);
}

#[tokio::test]
async fn answers_at_one_time_are_limited_until_they_end_or_are_left() {
    let rates = RateLimits { concurrent: Some(1), ..RateLimits::default() };
    let slow = [Act::Say("x"), Act::Pause(Duration::from_millis(200))];
    let server = server(rates, slow).await;
    let running = ask(&server, "one", true).await;
    assert_eq!(running.status(), 200);
    let refused = ask(&server, "one", true).await;
    assert_eq!(number(refused.headers(), "retry-after"), 1);
    error(refused, 429).await;
    let other = ask(&server, "two", true).await;
    assert_eq!(other.status(), 200);
    events(running).await;
    let again = ask(&server, "one", true).await;
    assert_eq!(again.status(), 200);
    drop(again);
    until("the place is free", async || ask(&server, "one", true).await.status() != 429).await;
}

#[tokio::test]
async fn callers_without_keys_are_told_apart_by_their_addresses() {
    let rates = RateLimits { requests: Some(1), ..RateLimits::default() };
    let options = ServerOptions { rates, ..ServerOptions::default() };
    let server = Server::start_with([Act::Say("x")], 4, options).await;
    assert_eq!(ask(&server, "any", false).await.status(), 200);
    assert_eq!(ask(&server, "made-up", false).await.status(), 429);
}

#[tokio::test]
async fn limits_leave_answers_as_they_were() {
    let rates = RateLimits { requests: Some(9), tokens: Some(999), concurrent: Some(9) };
    let server = server(rates, [Act::Say("x")]).await;
    let answer = ask(&server, "one", false).await;
    assert!(answer.headers().contains_key("content-length"), "{answer:?}");
    assert_eq!(ok(answer).await["choices"][0]["message"]["content"], "x");
    assert_eq!(events(ask(&server, "one", true).await).await.len(), 3);
}

#[tokio::test]
async fn bodies_deeper_than_the_limit_are_told_the_limit() {
    let options = ServerOptions { json_depth: 5, ..ServerOptions::default() };
    let server = Server::start_with([Act::Say("x")], 4, options).await;
    let nested = |depth: usize| {
        let deep = "[".repeat(depth) + &"]".repeat(depth);
        server.client.post(server.url(CHAT)).body(format!(r#"{{"deep": {deep}}}"#)).send()
    };
    let refused = error(nested(5).await.unwrap(), 400).await;
    assert_eq!(refused["code"], "body_too_deep");
    assert!(
        refused["message"].as_str().unwrap().contains("5 is allowed (json-depth)"),
        "{refused}"
    );
    assert_ne!(error(nested(4).await.unwrap(), 400).await["code"], "body_too_deep");
}
