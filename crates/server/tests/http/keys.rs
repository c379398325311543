//! API keys: who comes in with which, and as whom.

use crate::harness::{Server, chat_body, error, error_names, keep_errors, until};
use crate::support::Act;
use reqwest::{Response, StatusCode};
use serde_json::json;
use server::{ApiKeys, ServerOptions};
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";
const MODELS: &str = "/v1/models";

async fn server(keys: ApiKeys) -> Server {
    let options =
        ServerOptions { keys, reload: Duration::from_millis(10), ..ServerOptions::default() };
    Server::start_with([Act::Say("x")], 4, options).await
}

async fn get(server: &Server, path: &str, headers: &[(&str, &str)]) -> Response {
    let request = server.client.get(server.url(path));
    let with = |request: reqwest::RequestBuilder, (name, value): &(&str, &str)| {
        request.header(*name, *value)
    };
    headers.iter().fold(request, with).send().await.unwrap()
}

#[tokio::test]
async fn each_of_several_keys_opens_in_each_header() {
    let server = server(ApiKeys::new(["one", "two"]).unwrap()).await;
    for headers in [
        [("authorization", "Bearer one")].as_slice(),
        &[("authorization", "Bearer two")],
        &[("x-api-key", "one")],
        &[("api-key", "two")],
        &[("authorization", "Bearer stale"), ("x-api-key", "two")],
    ] {
        assert_eq!(get(&server, MODELS, headers).await.status(), 200, "{headers:?}");
    }
}

#[tokio::test]
async fn wrong_keys_are_refused_and_told_what_is_wanted() {
    let server = server(ApiKeys::new(["one", "two"]).unwrap()).await;
    for headers in [
        [].as_slice(),
        &[("authorization", "Bearer on")],
        &[("authorization", "Bearer one two")],
        &[("authorization", "Basic one")],
        &[("x-api-key", "three")],
        &[("x-gannet-tenant", "one")],
    ] {
        let refused = get(&server, MODELS, headers).await;
        assert_eq!(refused.headers()["www-authenticate"], "Bearer", "{headers:?}");
        let error = error(refused, 401).await;
        assert_eq!(error["code"], "invalid_api_key");
        assert!(!error.to_string().contains("three"), "{error}");
    }
}

#[tokio::test]
async fn the_page_and_the_health_are_open_and_the_data_is_not() {
    let server = server(ApiKeys::new(["one"]).unwrap()).await;
    for path in ["/", "/docs", "/openapi.json", "/health", "/ready"] {
        let status = get(&server, path, &[]).await.status();
        assert_ne!(status, StatusCode::UNAUTHORIZED, "{path}");
    }
    for path in [MODELS, "/metrics", "/v1/stats", "/version", "/docs/x", "//", "/health/"] {
        error(get(&server, path, &[]).await, 401).await;
    }
}

#[tokio::test]
async fn keys_of_a_file_open_until_they_are_taken_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    std::fs::write(&path, "# ours\nalice:first\nsecond\n").unwrap();
    keep_errors();
    let server = server(ApiKeys::default().with_file(&path).unwrap()).await;
    let status = async |key| get(&server, MODELS, &[("x-api-key", key)]).await.status();
    assert_eq!([status("first").await, status("second").await], [200, 200]);
    std::fs::write(&path, "second\nthird is broken\n").unwrap();
    error_names(&path).await;
    assert_eq!([status("first").await, status("third").await], [200, 401]);
    std::fs::write(&path, "second\nthird\n").unwrap();
    until("the first key is refused", async || status("first").await == 401).await;
    assert_eq!([status("second").await, status("third").await], [200, 200]);
}

/// The tenant of a request that came with this header.
async fn tenant(server: Server, name: &str, value: &str) -> (u64, Server) {
    let request = server.client.post(server.url(CHAT)).header(name, value);
    let answer = request.json(&chat_body(json!({}))).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let (report, server) = server.report().await;
    (report.request.tenant, server)
}

#[tokio::test]
async fn a_key_is_the_same_tenant_wherever_it_stands() {
    let server = server(ApiKeys::new(["one", "two"]).unwrap()).await;
    let (bearer, server) = tenant(server, "authorization", "Bearer one").await;
    let (plain, server) = tenant(server, "x-api-key", "one").await;
    let (other, _server) = tenant(server, "x-api-key", "two").await;
    assert_eq!(bearer, plain);
    assert_ne!(bearer, other);
    assert_ne!(bearer, 0);
}
