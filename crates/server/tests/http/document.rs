//! `GET /openapi.json`: what the document says of OpenAI's API.

use crate::harness::{Server, ok};
use crate::support::Act;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

async fn document() -> Value {
    let server = Server::start([]).await;
    ok(server.get("/openapi.json").await).await
}

const ANSWERS: [&str; 3] = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings"];

#[tokio::test]
async fn every_answer_and_refusal_has_a_type() {
    let document = document().await;
    for path in ANSWERS {
        let post = &document["paths"][path]["post"];
        let body = &post["requestBody"]["content"]["application/json"]["schema"];
        assert!(body.is_object(), "{path}: {post}");
        for status in ["200", "400", "401", "404", "413", "429", "500", "503"] {
            let content = &post["responses"][status]["content"]["application/json"];
            assert!(content["schema"].is_object(), "{path} {status}: {post}");
        }
    }
    for path in ["/v1/models", "/v1/models/{id}"] {
        let content = &document["paths"][path]["get"]["responses"]["200"]["content"];
        assert!(content["application/json"]["schema"].is_object(), "{path}: {content}");
    }
}

/// Every name of a schema that `value` refers to.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member.as_str().and_then(|text| text.strip_prefix("#/components/schemas/")) {
                    Some(schema) if name == "$ref" => drop(found.insert(schema.to_owned())),
                    _ => references(member, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[tokio::test]
async fn everything_that_is_referred_to_is_there() {
    let document = document().await;
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let absent: Vec<&String> = found.iter().filter(|name| !schemas.contains_key(*name)).collect();
    assert!(absent.is_empty() && found.len() > 40, "{absent:?} of {found:?}");
}

/// The members that `schema` has, those of its parts included.
fn members(document: &Value, schema: &Value) -> BTreeMap<String, Value> {
    let schema = match schema["$ref"].as_str().and_then(|text| text.rsplit('/').next()) {
        Some(name) => &document["components"]["schemas"][name],
        None => schema,
    };
    let own = schema["properties"].as_object().cloned().unwrap_or_default();
    let parts = schema["allOf"].as_array().into_iter().flatten();
    own.into_iter().chain(parts.flat_map(|part| members(document, part))).collect()
}

fn request(document: &Value, path: &str) -> BTreeMap<String, Value> {
    let body = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"];
    members(document, &body["schema"])
}

#[tokio::test]
async fn requests_have_all_their_members_in_the_document() {
    let document = document().await;
    let chat = request(&document, ANSWERS[0]);
    for name in [
        "messages",
        "tools",
        "tool_choice",
        "response_format",
        "temperature",
        "n",
        "stream",
        "thinking",
        "reasoning_effort",
        "guided_regex",
        "top_logprobs",
        "functions",
    ] {
        assert!(chat.contains_key(name), "{name} is not among {chat:?}");
    }
    let text = request(&document, ANSWERS[1]);
    for name in ["prompt", "echo", "logprobs", "best_of", "seed", "stop", "structured_outputs"] {
        assert!(text.contains_key(name), "{name} is not among {text:?}");
    }
}

/// Whether the document says that a member of this schema may be of this kind; `None` where it
/// says so by reference.
fn allows(schema: &Value, kind: &str) -> Option<bool> {
    match &schema["type"] {
        Value::String(one) => Some(one == kind),
        Value::Array(several) => Some(several.iter().any(|one| one == kind)),
        _ => None,
    }
}

#[tokio::test]
async fn kinds_that_the_document_does_not_allow_are_refused_and_none_breaks_the_server() {
    let server = Server::start([Act::Say("x")]).await;
    let document = ok(server.get("/openapi.json").await).await;
    let bases = [
        json!({"messages": [{"role": "user", "content": "hi"}]}),
        json!({"prompt": "hi"}),
        json!({"input": "hi"}),
    ];
    let kinds = [
        ("boolean", json!(true)),
        ("number", json!(0.5)),
        ("string", json!("\u{1}")),
        ("array", json!([[[]], {}, "x", -1])),
        ("object", json!({"type": [{}], "a": {"name": [1]}, "name": {}})),
    ];
    let mut refused = 0;
    for (path, base) in ANSWERS.iter().zip(&bases) {
        for (name, schema) in request(&document, path) {
            for (kind, value) in &kinds {
                let mut body = base.clone();
                body[&name] = value.clone();
                let status = server.post(path, &body).await.status();
                assert!(!status.is_server_error(), "{path}: {body}");
                if allows(&schema, kind) == Some(false) {
                    assert_eq!(status, 400, "{path}: {body}, which is of {schema}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 200, "{refused}");
}

#[tokio::test]
async fn routes_without_the_prefix_are_described_and_have_names_of_their_own() {
    let document = document().await;
    let paths = document["paths"].as_object().unwrap();
    for path in [
        "/chat/completions",
        "/chat/completions/input_tokens",
        "/completions",
        "/embedding",
        "/embeddings",
        "/models",
        "/models/{id}",
        "/responses",
        "/responses/{id}/input_items",
        "/v1/chat/completions/input_tokens",
    ] {
        assert!(paths.contains_key(path), "{path}");
    }
    let operations = paths.values().flat_map(|item| item.as_object().unwrap().values());
    let ids = operations.filter_map(|one| one["operationId"].as_str());
    let short: Vec<&str> = ids.filter(|id| id.ends_with("_unprefixed")).collect();
    let distinct: BTreeSet<&&str> = short.iter().collect();
    assert_eq!(distinct.len(), short.len(), "{short:?}");
    let chat = &document["paths"]["/chat/completions"]["post"];
    assert!(chat["responses"]["200"]["content"].is_object());
    assert!(chat["responses"]["400"].get("content").is_none());
}
