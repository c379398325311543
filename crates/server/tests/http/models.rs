//! The routes that tell about the server.

use crate::harness::{Server, ok};
use serde_json::json;

#[tokio::test]
async fn the_model_is_listed_under_its_name() {
    let server = Server::start([]).await;
    let list = ok(server.get("/v1/models").await).await;
    assert_eq!(list["object"], "list");
    let model = &list["data"][0];
    assert_eq!((&model["id"], &model["object"]), (&json!("test/model"), &json!("model")));
    assert_eq!(model["context_length"], 256);
    assert_eq!(model["arithmetic"], "f32");
    assert_eq!(model["meta"], json!({"n_vocab": 265, "n_ctx": 256}));
    assert!(model["meta"]["n_vocab"].as_u64().is_some_and(|size| size > 0), "{model}");
    assert_eq!(ok(server.get("/v1/models/test/model").await).await, *model);
    // Requests may use any name, and so may this one.
    for name in ["other", "test/model:latest", "some/other"] {
        assert_eq!(ok(server.get(&format!("/v1/models/{name}")).await).await, *model, "{name}");
    }
}

#[tokio::test]
async fn codex_finds_the_list_that_it_insists_on() {
    let server = Server::start([]).await;
    let list = ok(server.get("/v1/models?client_version=0.145.0").await).await;
    assert_eq!((&list["models"], list["data"].as_array().unwrap().len()), (&json!([]), 1));
    assert!(ok(server.get("/v1/models").await).await.get("models").is_none());
}

#[tokio::test]
async fn anthropics_clients_get_their_form_whatever_version_and_key_they_send() {
    let server = Server::start([]).await;
    let get = async |path: &str, headers: [(&'static str, &str); 2]| {
        let mut request = server.client.get(server.url(path));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.send().await.unwrap()
    };
    for (version, key) in [
        ("2023-06-01", ("x-api-key", "none")),
        ("2026-10-21", ("authorization", "Bearer none")),
        ("2099-01-01", ("authorization", "Bearer none")),
    ] {
        let headers = [("anthropic-version", version), key];
        let list = ok(get("/v1/models?limit=1", headers).await).await;
        let model = &list["data"][0];
        assert_eq!((&model["type"], &model["id"]), (&json!("model"), &json!("test/model")));
        assert!(model["display_name"].is_string() && model["created_at"].is_string(), "{model}");
        assert_eq!(
            (&list["has_more"], &list["first_id"], &list["last_id"]),
            (&json!(false), &model["id"], &model["id"])
        );
        assert_eq!(ok(get("/v1/models/test/model", headers).await).await, *model);
        // The only model answers to any name.
        assert_eq!(ok(get("/v1/models/other", headers).await).await, *model);
        let asked = json!({"max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]});
        let request = server.client.post(server.url("/v1/messages/count_tokens")).json(&asked);
        let counted = request.header("anthropic-version", version).header(key.0, key.1);
        assert_eq!(counted.send().await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn health_and_version_answer() {
    let server = Server::start([]).await;
    assert_eq!(ok(server.get("/health").await).await, json!({"status": "ok"}));
    let version = ok(server.get("/version").await).await;
    assert_eq!(version["name"], "gannet");
    assert!(version["version"].as_str().unwrap().contains('.'));
}
