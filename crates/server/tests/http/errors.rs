//! Faults: always OpenAI's JSON, whatever goes wrong.

use crate::harness::{Server, chat_body, error, events};
use crate::support::{Act, CONTEXT};
use serde_json::{Value, json};
use server::{ApiKeys, ServerOptions};
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn context_overflow_tells_the_sizes_before_any_compute() {
    let server = Server::start([Act::Say("x")]).await;
    let long = "x".repeat(CONTEXT);
    let body = json!({"messages": [{"role": "user", "content": long}], "stream": true});
    let refused = error(server.post(CHAT, &body).await, 400).await;
    assert_eq!(refused["code"], "context_length_exceeded");
    assert_eq!((&refused["param"], &refused["n_ctx"]), (&json!("messages"), &json!(CONTEXT)));
    assert!(refused["n_prompt_tokens"].as_u64().unwrap() > CONTEXT as u64);
    let error = error(server.post("/v1/completions", &json!({"prompt": long})).await, 400).await;
    assert_eq!(
        (&error["param"], &error["n_prompt_tokens"]),
        (&json!("prompt"), &json!(CONTEXT + 1))
    );
    assert!(server.no_report());
}

#[tokio::test]
async fn broken_json_is_a_bad_request() {
    let server = Server::start([]).await;
    let deep = "[".repeat(100_000);
    for body in ["", "{", "[1]", "\u{0}", "{\"messages\": \"\\ud800\"}", deep.as_str()] {
        let request = server.client.post(server.url(CHAT)).body(body.to_owned());
        let error = error(request.send().await.unwrap(), 400).await;
        assert_eq!(error["type"], "invalid_request_error");
    }
}

async fn check_param(server: &Server, extra: Value, param: &str) {
    let error = error(server.post(CHAT, &chat_body(extra)).await, 400).await;
    assert_eq!(error["param"], param, "{error}");
}

#[tokio::test]
async fn wrong_fields_are_named() {
    let server = Server::start([]).await;
    check_param(&server, json!({"temperature": "hot"}), "temperature").await;
    check_param(&server, json!({"temperature": -1}), "temperature").await;
    check_param(&server, json!({"top_p": 2}), "top_p").await;
    check_param(&server, json!({"max_tokens": 0}), "max_tokens").await;
    check_param(&server, json!({"stop": vec!["x"; 17]}), "stop").await;
    check_param(&server, json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs").await;
    check_param(&server, json!({"logit_bias": {"99999": 1}}), "logit_bias").await;
    check_param(&server, json!({"messages": 1}), "messages").await;
    check_param(&server, json!({"stream": "yes"}), "stream").await;
    check_param(
        &server,
        json!({"stream_options": {"include_usage": 1}}),
        "stream_options.include_usage",
    )
    .await;
    let unknown = json!({"response_format": {"type": "xml"}});
    check_param(&server, unknown, "response_format.type").await;
    let forbidden = json!({"response_format": {"type": "json_object"}, "guided_regex": "a"});
    check_param(&server, forbidden, "guided_regex").await;
    check_param(&server, json!({"guided_regex": "("}), "guided_regex").await;
}

#[tokio::test]
async fn templates_that_refuse_are_bad_requests() {
    let server = Server::start([]).await;
    let body = json!({"messages": [{"role": "forbidden", "content": "x"}]});
    let error = error(server.post(CHAT, &body).await, 400).await;
    assert!(error["message"].as_str().unwrap().contains("no such role"), "{error}");
}

#[tokio::test]
async fn unknown_routes_and_methods_are_told_in_json() {
    let server = Server::start([]).await;
    assert_eq!(error(server.get("/v2/nothing").await, 404).await["code"], "unknown_endpoint");
    assert_eq!(error(server.get(CHAT).await, 405).await["code"], "method_not_allowed");
    error(server.post("/health", &json!({})).await, 405).await;
}

#[tokio::test]
async fn errors_have_the_form_of_the_protocol_that_their_path_belongs_to() {
    let server = Server::start([]).await;
    for path in ["/api", "/api/", "/api/nothing", "/api/no/such"] {
        let body: Value = server.get(path).await.json().await.unwrap();
        assert_eq!(body, json!({"error": format!("no such endpoint: GET {path}")}));
    }
    for path in ["/v1/messages/", "/v1/messages/nothing", "/v1/messages/a/b"] {
        let response = server.get(path).await;
        assert!(response.headers().contains_key("request-id"), "{path}");
        let body: Value = response.json().await.unwrap();
        let message = format!("no such endpoint: GET {path}");
        let error = json!({"type": "not_found_error", "message": message});
        assert_eq!(body, json!({"type": "error", "error": error}));
    }
    let wrong = [
        ("/api/chat", json!("/api/chat does not take GET")),
        (
            "/completion",
            json!({"code": 405, "message": "/completion does not take GET",
            "type": "invalid_request_error"}),
        ),
        (
            "/v1/responses",
            json!({"message": "/v1/responses does not take GET",
            "type": "invalid_request_error", "param": null, "code": "method_not_allowed"}),
        ),
    ];
    for (path, expected) in wrong {
        let response = server.get(path).await;
        assert_eq!(response.status(), 405, "{path}");
        let body: Value = response.json().await.unwrap();
        assert_eq!(body["error"], expected, "{path}");
    }
    let metrics = server.get("/metrics").await.text().await.unwrap();
    assert!(!metrics.contains("handler=\"/v1/messages/\"") && !metrics.contains('*'), "{metrics}");
}

#[tokio::test]
async fn large_bodies_are_refused() {
    let options = ServerOptions { body_limit: 1000, ..Default::default() };
    let server = Server::start_with([], 4, options).await;
    let body = chat_body(json!({"x": "y".repeat(200_000)}));
    assert_eq!(error(server.post(CHAT, &body).await, 413).await["code"], "body_too_large");
}

#[tokio::test]
async fn bodies_that_never_come_are_given_up() {
    let options = ServerOptions { body_timeout: Duration::from_millis(50), ..Default::default() };
    let server = Server::start_with([], 4, options).await;
    let never = reqwest::Body::wrap_stream(futures_util::stream::pending::<
        Result<Vec<u8>, std::io::Error>,
    >());
    let request = server.client.post(server.url(CHAT)).body(never);
    error(request.send().await.unwrap(), 408).await;
}

#[tokio::test]
async fn keys_guard_all_but_health() {
    let options = ServerOptions { keys: ApiKeys::new(["secret"]).unwrap(), ..Default::default() };
    let server = Server::start_with([Act::Say("x")], 4, options).await;
    assert_eq!(server.get("/health").await.status(), 200);
    assert_eq!(error(server.get("/v1/models").await, 401).await["code"], "invalid_api_key");
    error(server.get("/v2/nothing").await, 401).await;
    let with_key = server.client.get(server.url("/v1/models")).bearer_auth("secret");
    assert_eq!(with_key.send().await.unwrap().status(), 200);
}

/// The answer to a browser that asks whether a page of `page` may post with a key to a private
/// network, where pages of `allowed` may.
async fn preflight(allowed: Option<&str>, page: &str) -> reqwest::header::HeaderMap {
    let cors_origin = allowed.map(str::to_owned);
    let keys = ApiKeys::new(["secret"]).unwrap();
    let options = ServerOptions { cors_origin, keys, ..Default::default() };
    let server = Server::start_with([], 4, options).await;
    let asked = server
        .client
        .request(reqwest::Method::OPTIONS, server.url(CHAT))
        .header("origin", page)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,x-stainless-os")
        .header("access-control-request-private-network", "true");
    asked.send().await.unwrap().headers().clone()
}

const PAGE: &str = "http://a.example";

#[tokio::test]
async fn browsers_of_the_origin_may_call_with_keys_and_without_cookies() {
    let any = preflight(Some("*"), PAGE).await;
    assert_eq!(any["access-control-allow-origin"], "*");
    assert_eq!(any["access-control-allow-headers"], "authorization,x-stainless-os");
    assert!(!any.contains_key("access-control-allow-credentials"));
    assert!(!any.contains_key("access-control-allow-private-network"), "any page may not");
    let one = preflight(Some(PAGE), PAGE).await;
    assert_eq!(one["access-control-allow-origin"], PAGE);
    assert_eq!(one["access-control-allow-private-network"], "true");
    assert!(one["vary"].to_str().unwrap().contains("origin"));
}

#[tokio::test]
async fn other_pages_are_allowed_nothing() {
    for (allowed, page) in [(None, PAGE), (Some(PAGE), "http://b.example")] {
        let headers = preflight(allowed, page).await;
        let origin = headers.get("access-control-allow-origin");
        assert!(origin.is_none_or(|origin| origin == PAGE && page != PAGE), "{headers:?}");
    }
}

#[tokio::test]
async fn pages_of_this_machine_may_call_from_any_port() {
    let local = [
        "http://localhost:5173",
        "http://localhost",
        "https://localhost:8443",
        "http://127.0.0.1:3000",
        "http://[::1]:80",
    ];
    for page in local {
        let headers = preflight(Some("localhost"), page).await;
        assert_eq!(headers["access-control-allow-origin"], page);
        assert_eq!(headers["access-control-allow-headers"], "authorization,x-stainless-os");
        assert_eq!(headers["access-control-allow-private-network"], "true");
        assert!(headers["access-control-allow-methods"].to_str().unwrap().contains("POST"));
        assert!(headers["vary"].to_str().unwrap().contains("origin"));
    }
    for page in [
        "http://localhost.example",
        "http://example:80",
        "http://localhost:99999",
        "http://127.0.0.1.example:80",
        "http://a@localhost:1",
        "null",
        "file://localhost",
    ] {
        let headers = preflight(Some("localhost"), page).await;
        assert!(!headers.contains_key("access-control-allow-origin"), "{page} {headers:?}");
    }
}

#[tokio::test]
async fn preflights_need_no_key_on_any_route_and_only_them() {
    let keys = ApiKeys::new(["secret"]).unwrap();
    let options = |origin: Option<&str>| ServerOptions {
        cors_origin: origin.map(str::to_owned),
        keys: keys.clone(),
        ..Default::default()
    };
    let server = Server::start_with([], 4, options(Some("localhost"))).await;
    let page = "http://localhost:5173";
    for path in [
        CHAT,
        "/v1/models",
        "/v1/messages",
        "/v1/responses",
        "/api/chat",
        "/completion",
        "/health",
        "/metrics",
        "/",
        "/nowhere",
    ] {
        let asked = server.client.request(reqwest::Method::OPTIONS, server.url(path));
        let asked = asked.header("origin", page).header("access-control-request-method", "POST");
        let answer = asked.send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!(answer.headers()["access-control-allow-origin"], page, "{path}");
        assert_eq!(answer.text().await.unwrap(), "", "{path}");
    }
    let asked = server.client.get(server.url("/v1/models")).header("origin", page);
    let refused = asked.send().await.unwrap();
    assert_eq!(refused.headers()["access-control-allow-origin"], page, "the page reads the fault");
    assert_eq!(error(refused, 401).await["code"], "invalid_api_key");
    let without = Server::start_with([], 4, ServerOptions::default()).await;
    let asked = without.client.request(reqwest::Method::OPTIONS, without.url(CHAT));
    let answer = asked.header("origin", page).send().await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["allow"]),
        (405, &"POST".parse().unwrap())
    );
}

#[tokio::test]
async fn browsers_read_faults_and_the_names_of_their_limits() {
    let options = ServerOptions { cors_origin: Some("*".into()), ..Default::default() };
    let server = Server::start_with([], 4, options).await;
    let error = server.client.get(server.url("/x")).header("origin", PAGE);
    let error = error.send().await.unwrap();
    assert_eq!(error.headers()["access-control-allow-origin"], "*");
    let shown = error.headers()["access-control-expose-headers"].to_str().unwrap();
    assert!(shown.contains("x-request-id") && shown.contains("x-ratelimit-reset-tokens"));
}

#[tokio::test]
async fn broken_generations_are_server_errors() {
    let server = Server::start([Act::Say("a"), Act::Fail("layer 3: not a number")]).await;
    let error = error(server.post(CHAT, &chat_body(json!({}))).await, 500).await;
    assert_eq!(
        (&error["type"], &error["message"]),
        (&json!("server_error"), &json!("layer 3: not a number"))
    );
}

#[tokio::test]
async fn streams_that_break_say_so_and_end() {
    let server = Server::start([Act::Say("a"), Act::Fail("layer 3: not a number")]).await;
    let response = server.post(CHAT, &chat_body(json!({"stream": true}))).await;
    assert_eq!(response.status(), 200);
    let text = response.text().await.unwrap();
    let last: Vec<&str> = text.lines().rev().filter(|line| !line.is_empty()).take(3).collect();
    assert_eq!((last[2], last[0]), ("event: error", "data: [DONE]"));
    let error: Value = serde_json::from_str(last[1].strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(error["error"]["message"], "layer 3: not a number");
}

#[tokio::test]
async fn a_full_queue_refuses_with_a_time_to_wait() {
    let script = [Act::Pause(Duration::from_millis(300)), Act::Say("x")];
    let server = Server::start_with(script, 1, ServerOptions::default()).await;
    let body = chat_body(json!({"stream": true}));
    let mut taken = Vec::new();
    let refused = loop {
        let response = server.post(CHAT, &body).await;
        if response.status() != 200 {
            break response;
        }
        taken.push(response);
    };
    assert!((1..=2).contains(&taken.len()), "{}", taken.len());
    let body = chat_body(json!({"n": 2}));
    assert_eq!(error(server.post(CHAT, &body).await, 400).await["param"], "n");
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(error(refused, 429).await["code"], "queue_full");
    for response in taken {
        events(response).await;
    }
}
