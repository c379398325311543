//! Parts of schemas that cannot be enforced, which answers name in their warnings.

use crate::harness::{Server, ok};
use crate::support::Act;
use serde_json::{Value, json};

async fn warnings(path: &str, body: Value) -> String {
    let server = Server::start([Act::Say("{}<|im_end|>")]).await;
    ok(server.post(path, &body).await).await["warnings"].to_string()
}

#[tokio::test]
async fn what_a_schema_is_enforced_without_is_named_in_every_protocol() {
    let schema =
        json!({"type": "object", "properties": {"p": {"type": "string", "not": {"const": "a"}}}});
    let messages = json!([{"role": "user", "content": "hi"}]);
    let format = json!({"type": "json_schema", "name": "n", "schema": &schema});
    for (path, body) in [
        (
            "/v1/chat/completions",
            json!({"messages": &messages, "response_format": {"type": "json_schema",
                "json_schema": {"name": "n", "schema": &schema}}}),
        ),
        ("/v1/responses", json!({"input": "hi", "text": {"format": &format}})),
        (
            "/v1/messages",
            json!({"max_tokens": 9, "messages": &messages, "tool_choice": {"type": "any"},
                "tools": [{"name": "f", "input_schema": &schema}]}),
        ),
        ("/api/chat", json!({"messages": &messages, "stream": false, "format": &schema})),
        ("/api/generate", json!({"prompt": "hi", "stream": false, "format": &schema})),
    ] {
        let named = warnings(path, body).await;
        assert!(named.contains("is enforced without #/properties/p/not"), "{path}: {named}");
    }
}
