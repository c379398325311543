//! Conversations that are made shorter.

use crate::harness::{Server, error, ok};
use crate::support::{Act, CONTEXT, tokenizer};
use serde_json::{Value, json};

const PATH: &str = "/v1/responses";
const COMPACT: &str = "/v1/responses/compact";

/// The response to `input`, which must succeed.
async fn ask(server: &Server, input: Value) -> Value {
    ok(server.post(PATH, &json!({"model": "any", "input": input})).await).await
}

fn id(response: &Value) -> &str {
    response["id"].as_str().unwrap()
}

#[tokio::test]
async fn a_conversation_is_compacted_to_its_users_messages_and_a_summary() {
    let server = Server::start([Act::Say("<think>hm</think>We are done.<|im_end|>")]).await;
    let conversation = json!({"model": "any", "prompt_cache_key": "k", "instructions": "be",
        "input": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "found"},
        {"role": "user", "content": "d"}]});
    let compacted = ok(server.post(COMPACT, &conversation).await).await;
    assert_eq!(compacted["object"], "response.compaction");
    assert!(compacted["created_at"].is_u64() && compacted["id"].is_string());
    let output = compacted["output"].as_array().unwrap();
    let texts: Vec<&Value> = output.iter().map(|item| &item["content"][0]["text"]).collect();
    assert_eq!(texts, [&json!("s"), &json!("a"), &json!("d"), &json!(null)]);
    assert_eq!(output[3]["type"], "compaction");
    assert!(output[3]["encrypted_content"].is_string() && output[3]["id"].is_string());
    let (report, server) = server.report().await;
    assert_eq!(report.request.sampling.temperature, 0.0);
    let usage = &compacted["usage"];
    assert_eq!(usage["input_tokens"], report.request.prompt.len());
    let asked = tokenizer().decode(&report.request.prompt, false);
    assert!(asked.contains("found") && asked.contains("user\nd\n\nSummarize"), "{asked}");

    let mut input = output.clone();
    input.push(json!({"role": "user", "content": "go on"}));
    let response = ask(&server, json!(input)).await;
    let (report, server) = server.report().await;
    let prompt = tokenizer().decode(&report.request.prompt, false);
    let expected = "user\na\n\nd\n\nThe conversation before this was replaced by a summary of \
        it:\n\nWe are done.\n\ngo on<|im_end|>";
    assert!(prompt.contains(expected) && !prompt.contains("found"), "{prompt}");
    // The item is one of the conversation's.
    let items = ok(server.get(&format!("{PATH}/{}/input_items", id(&response))).await).await;
    assert_eq!(items["data"][1], output[3]);
    let stored = ask(&server, json!("hi")).await;
    let again = json!({"model": null, "previous_response_id": id(&stored)});
    let again = ok(server.post(COMPACT, &again).await).await;
    let kinds: Vec<&Value> =
        again["output"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["message", "compaction"]);
}

#[tokio::test]
async fn what_cannot_be_compacted_is_refused() {
    let server = Server::start([Act::Say("<|im_end|>")]).await;
    for (body, param) in [
        (json!({"input": "hi"}), "model"),
        (json!({"model": "m"}), "input"),
        (json!({"model": "m", "input": []}), "input"),
        (
            json!({"model": "m", "input": "x", "previous_response_id": "resp_no"}),
            "previous_response_id",
        ),
        (json!({"model": "m", "input": "x", "conversation": "c"}), "conversation"),
        (json!({"model": "m", "input": "x".repeat(CONTEXT)}), "input"),
        (
            json!({"model": "m", "input": [{"type": "compaction", "encrypted_content": "gAAA"}]}),
            "input[0].encrypted_content",
        ),
    ] {
        let error = error(server.post(COMPACT, &body).await, 400).await;
        assert_eq!(error["param"], param, "{error}");
    }
    // An empty summary would lose the conversation.
    let error = error(server.post(COMPACT, &json!({"model": "m", "input": "x"})).await, 500).await;
    assert!(error["message"].as_str().unwrap().contains("no summary"), "{error}");
}
