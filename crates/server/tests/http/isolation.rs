//! Who shares the caches with whom: every request that computes says which part of them it uses.

use crate::harness::{Server, error, ok};
use crate::support::Act;
use api::CacheIsolation;
use serde_json::{Value, json};
use server::{ApiKeys, ServerOptions};

const CHAT: &str = "/v1/chat/completions";

/// The routes that compute, each with a body.
fn routes() -> Vec<(&'static str, Value)> {
    let messages = json!([{"role": "user", "content": "hi"}]);
    vec![
        (CHAT, json!({"messages": messages})),
        ("/v1/completions", json!({"prompt": "hi"})),
        ("/v1/responses", json!({"input": "hi"})),
        ("/v1/messages", json!({"messages": messages, "max_tokens": 5})),
        ("/v1/embeddings", json!({"input": "hi"})),
        ("/api/chat", json!({"messages": messages, "stream": false})),
        ("/api/generate", json!({"prompt": "hi", "stream": false})),
        ("/api/embed", json!({"input": "hi"})),
        ("/completion", json!({"prompt": "hi"})),
    ]
}

async fn server(keys: &[&str], cache_isolation: Option<CacheIsolation>) -> Server {
    let keys = ApiKeys::new(keys).unwrap();
    let options = ServerOptions { keys, cache_isolation, ..ServerOptions::default() };
    Server::start_with([Act::Say("x")], 4, options).await
}

/// The part of the caches that a request uses.
async fn space(server: Server, path: &str, key: &str, body: &Value) -> ([u8; 16], Server) {
    let request = server.client.post(server.url(path)).bearer_auth(key).json(body);
    ok(request.send().await.unwrap()).await;
    let (report, server) = server.report().await;
    (report.request.space, server)
}

#[tokio::test]
async fn keys_have_parts_of_their_own_where_there_are_two() {
    for (path, body) in routes() {
        let (alone, _) = space(server(&["one"], None).await, path, "one", &body).await;
        assert_eq!(alone, [0; 16], "{path}");
        let server = server(&["one", "two"], None).await;
        let (one, server) = space(server, path, "one", &body).await;
        let (again, server) = space(server, path, "one", &body).await;
        let (two, _) = space(server, path, "two", &body).await;
        assert!(one == again && one != two && ![one, two].contains(&[0; 16]), "{path}");
    }
}

#[tokio::test]
async fn isolation_is_what_the_server_is_set_to() {
    let (path, body) = &routes()[0];
    let (off, key) = (CacheIsolation::Off, CacheIsolation::Key);
    let (shared, _) = space(server(&["one", "two"], Some(off)).await, path, "one", body).await;
    assert_eq!(shared, [0; 16]);
    let (own, _) = space(server(&["one"], Some(key)).await, path, "one", body).await;
    assert_ne!(own, [0; 16]);
    // Without keys of the server, whatever key a client sends is its own.
    let (sent, _) = space(server(&[], Some(key)).await, path, "one", body).await;
    assert_eq!(sent, own);
}

#[tokio::test]
async fn users_have_parts_of_their_own_where_the_server_is_set_to_that() {
    let named = |path: &str, user: &str| match path {
        "/v1/messages" => json!({"metadata": {"user_id": user}}),
        _ => json!({"user": user}),
    };
    for (path, body) in &routes()[..5] {
        let with = |user: &str| {
            let mut body = body.clone();
            let more = named(path, user);
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        let server = server(&["one", "two"], Some(CacheIsolation::User)).await;
        let (u, server) = space(server, path, "one", &with("u")).await;
        let (v, server) = space(server, path, "one", &with("v")).await;
        let (none, server) = space(server, path, "one", body).await;
        let (other, _) = space(server, path, "two", &with("u")).await;
        assert!(u != v && u != none && v != none && u != other, "{path}");
    }
}

#[tokio::test]
async fn users_are_those_of_their_key_in_the_fair_shares_too() {
    let shares = async |key: Option<&str>, user: Option<&str>| {
        let server = server(&[], None).await;
        let mut request = server.client.post(server.url(CHAT));
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let mut body = routes()[0].1.clone();
        body["user"] = json!(user);
        ok(request.json(&body).send().await.unwrap()).await;
        let request = server.report().await.0.request;
        (request.tenant, request.user)
    };
    let (one, two) = (shares(Some("one"), Some("u")).await, shares(Some("two"), Some("u")).await);
    assert!(one.0 != two.0 && one.1 == two.1);
    let (other, none) = (shares(Some("one"), Some("v")).await, shares(Some("one"), None).await);
    assert!(one.0 == other.0 && one.1 != other.1 && one.0 == none.0 && one.1 != none.1);
    assert_eq!(one, shares(Some("one"), Some("u")).await);
    assert_eq!(shares(None, None).await, (0, 0));
    assert_eq!(shares(None, Some("u")).await, (0, one.1));
}

#[tokio::test]
async fn salts_part_the_caches_of_a_key() {
    for (path, body) in &routes()[..3] {
        let with = |salt: Value| {
            let mut body = body.clone();
            body["cache_salt"] = salt;
            body
        };
        let server = server(&[], None).await;
        let (a, server) = space(server, path, "one", &with(json!("a"))).await;
        let (b, server) = space(server, path, "one", &with(json!("b"))).await;
        let (none, server) = space(server, path, "one", &with(Value::Null)).await;
        assert!(a != b && a != none && none == [0; 16], "{path}");
        for salt in [json!(""), json!(7), json!(["a"]), json!("x".repeat(257))] {
            let refused = error(server.post(path, &with(salt.clone())).await, 400).await;
            assert_eq!(refused["param"], "cache_salt", "{path} {salt}");
        }
    }
}

#[tokio::test]
async fn responses_are_continued_with_their_salt_only() {
    let server = server(&[], None).await;
    let path = "/v1/responses";
    let body = json!({"input": "hi", "cache_salt": "a"});
    let first = ok(server.post(path, &body).await).await;
    let id = &first["id"];
    let item = &first["output"][0]["id"];
    let next = |salt: Option<&str>| json!({"input": "go on", "previous_response_id": id, "cache_salt": salt});
    ok(server.post(path, &next(Some("a"))).await).await;
    let refer = |salt: Option<&str>| {
        let input =
            json!([{"type": "item_reference", "id": item}, {"role": "user", "content": "x"}]);
        json!({"input": input, "cache_salt": salt})
    };
    ok(server.post(path, &refer(Some("a"))).await).await;
    for salt in [None, Some("b")] {
        let refused = error(server.post(path, &next(salt)).await, 400).await;
        assert_eq!(refused["code"], "previous_response_not_found", "{salt:?}");
        error(server.post(path, &refer(salt)).await, 400).await;
    }
}
