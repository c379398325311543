//! `GET /openapi.json`: what the document says of OpenAI's API.

use crate::harness::{Server, ok};
use serde_json::Value;
use std::collections::BTreeSet;

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

/// The members that the schema `name` has, those of its parts included.
fn members(document: &Value, schema: &Value) -> BTreeSet<String> {
    let schema = match schema["$ref"].as_str().and_then(|text| text.rsplit('/').next()) {
        Some(name) => &document["components"]["schemas"][name],
        None => schema,
    };
    let own = schema["properties"].as_object().into_iter().flat_map(|all| all.keys().cloned());
    let parts = schema["allOf"].as_array().into_iter().flatten();
    own.chain(parts.flat_map(|part| members(document, part))).collect()
}

#[tokio::test]
async fn requests_have_all_their_members_in_the_document() {
    let document = document().await;
    let of = |path: &str| {
        let body = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"];
        members(&document, &body["schema"])
    };
    let chat = of(ANSWERS[0]);
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
        assert!(chat.contains(name), "{name} is not among {chat:?}");
    }
    let text = of(ANSWERS[1]);
    for name in ["prompt", "echo", "logprobs", "best_of", "seed", "stop", "structured_outputs"] {
        assert!(text.contains(name), "{name} is not among {text:?}");
    }
}
