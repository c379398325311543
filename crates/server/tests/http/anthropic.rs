//! `POST /v1/messages` and the count of its tokens.

use crate::harness::{Server, ok};
use crate::support::{Act, CONTEXT, ids, tokenizer};
use reqwest::Response;
use serde_json::{Value, json};
use server::{ApiKeys, ServerOptions};
use std::time::Duration;

const MESSAGES: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";
const PROMPT: &str = "<|endoftext|><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";

/// A request with `extra` members.
fn body(extra: Value) -> Value {
    let mut body = json!({"model": "any", "max_tokens": 100,
                          "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

async fn message(server: &Server, extra: Value) -> Value {
    ok(server.post(MESSAGES, &body(extra)).await).await
}

/// The error of a response, which must have this status.
async fn error(response: Response, status: u16) -> Value {
    assert_eq!(response.status(), status);
    assert!(response.headers().contains_key("request-id"));
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["type"], "error", "{body}");
    body["error"].clone()
}

/// The events of a stream.
async fn events(server: &Server, mut extra: Value) -> Vec<Value> {
    extra["stream"] = true.into();
    let response = server.post(MESSAGES, &body(extra)).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = response.text().await.unwrap();
    let event = |event: &str| {
        let (name, data) = event.split_once("\ndata: ").expect(event);
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        data
    };
    text.split_terminator("\n\n").map(event).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn whole_answer_has_anthropics_shape() {
    let server = Server::start([Act::Say("<think>why</think>hello<|im_end|>")]).await;
    let response = server.post(MESSAGES, &body(json!({}))).await;
    assert_eq!(response.headers()["request-id"], response.headers()["x-request-id"]);
    let mut answer = ok(response).await;
    assert!(answer["id"].as_str().unwrap().starts_with("msg_"));
    let signature = answer["content"][0]["signature"].take();
    assert_eq!(signature.as_str().map(str::len), Some(64));
    answer.as_object_mut().unwrap().shift_remove("id");
    let thinking = answer["usage"]["output_tokens_details"]["thinking_tokens"].take();
    assert!(thinking.as_u64().unwrap() >= 3);
    let expected = json!({
        "type": "message", "role": "assistant", "model": "test/model",
        "content": [
            {"type": "thinking", "thinking": "why", "signature": null},
            {"type": "text", "text": "hello"},
        ],
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {
            "input_tokens": ids(PROMPT).len() - 3, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 3, "output_tokens": ids("<think>why</think>hello").len(),
            "output_tokens_details": {"thinking_tokens": null}, "service_tier": "standard",
        },
    });
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn stream_has_anthropics_events_in_order() {
    let server = Server::start([Act::Say("<think>why</think>hello<|im_end|>")]).await;
    let events = events(&server, json!({})).await;
    let (start, delta, stop) = ("content_block_start", "content_block_delta", "content_block_stop");
    let thinking = [start, delta, delta, delta, delta, stop];
    let expected = [&["message_start", "ping"], &thinking[..], &[start, delta, stop]].concat();
    assert_eq!(kinds(&events), [&expected[..], &["message_delta", "message_stop"]].concat());
    let start = &events[0]["message"]["usage"];
    assert_eq!(start["input_tokens"], ids(PROMPT).len() - 3);
    assert_eq!(events[6]["delta"]["type"], "signature_delta");
    let last = &events[events.len() - 2];
    assert_eq!(last["delta"], json!({"stop_reason": "end_turn", "stop_sequence": null}));
    assert_eq!(last["usage"]["cache_read_input_tokens"], 3);
    // Clients that find other numbers at the end add them to the first ones.
    for kind in ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"] {
        assert_eq!(last["usage"][kind], start[kind], "{kind}");
    }
}

#[tokio::test]
async fn silence_is_filled_with_pings() {
    let options = ServerOptions { ping_interval: Duration::from_millis(20), ..Default::default() };
    let script = vec![Act::Pause(Duration::from_millis(200)), Act::Say("a")];
    let server = Server::start_with(script, 4, options).await;
    let events = events(&server, json!({})).await;
    let before = kinds(&events).iter().take_while(|kind| **kind != "content_block_start").count();
    assert!(kinds(&events)[1..before].iter().all(|kind| *kind == "ping"));
    assert!(before > 3, "{before}");
}

#[tokio::test]
async fn a_stream_that_breaks_ends_in_an_error() {
    let server = Server::start([Act::Say("a"), Act::Fail("layer 3: not a number")]).await;
    let events = events(&server, json!({})).await;
    let expected = ["message_start", "ping", "content_block_start", "content_block_delta", "error"];
    assert_eq!(kinds(&events), expected);
    let expected = json!({"type": "api_error", "message": "layer 3: not a number"});
    assert_eq!(events[4]["error"], expected);
    let whole = server.post(MESSAGES, &body(json!({}))).await;
    assert_eq!(error(whole, 500).await["type"], "api_error");
}

#[tokio::test]
async fn stop_sequences_and_limits_end_the_answer() {
    let server = Server::start([Act::Say("one END"), Act::Forever("x")]).await;
    let stopped = message(&server, json!({"stop_sequences": ["", "END"]})).await;
    assert_eq!(stopped["content"], json!([{"type": "text", "text": "one "}]));
    assert_eq!(
        (&stopped["stop_reason"], &stopped["stop_sequence"]),
        (&json!("stop_sequence"), &json!("END"))
    );
    let limited = message(&server, json!({"max_tokens": 2})).await;
    assert_eq!(
        (&limited["stop_reason"], &limited["usage"]["output_tokens"]),
        (&json!("max_tokens"), &json!(2))
    );
    // A limit beyond the context means the room that is left.
    let full = message(&server, json!({"max_tokens": 1_000_000})).await;
    assert_eq!(full["usage"]["output_tokens"], CONTEXT - ids(PROMPT).len());
}

#[tokio::test]
async fn tokens_are_counted_as_they_would_be_used_even_where_they_do_not_fit() {
    let server = Server::start([]).await;
    let count = async |body: Value| ok(server.post(COUNT, &body).await).await;
    let messages = json!([{"role": "user", "content": "hi"}]);
    let expected = json!({"input_tokens": ids(PROMPT).len()});
    assert_eq!(count(json!({"messages": messages})).await, expected);
    assert_eq!(count(body(json!({}))).await, expected);
    let long = body(json!({"messages": [{"role": "user", "content": "x".repeat(2 * CONTEXT)}]}));
    assert!(count(long).await["input_tokens"].as_u64().unwrap() > 2 * CONTEXT as u64);
    assert!(server.no_report());
}

#[tokio::test]
async fn overflow_is_told_in_the_words_that_agents_look_for() {
    let server = Server::start([Act::Say("x")]).await;
    let long =
        json!({"stream": true, "messages": [{"role": "user", "content": "x".repeat(CONTEXT)}]});
    let error = error(server.post(MESSAGES, &body(long)).await, 400).await;
    let tokens = error["n_prompt_tokens"].as_u64().unwrap();
    let expected = json!({
        "type": "invalid_request_error",
        "message": format!("prompt is too long: {tokens} tokens > {} maximum", CONTEXT - 1),
        "n_prompt_tokens": tokens,
        "n_ctx": CONTEXT,
    });
    assert_eq!(error, expected);
    assert!(server.no_report());
}

#[tokio::test]
async fn conversations_with_tools_reach_the_template() {
    let server = Server::start([Act::Say("x")]).await;
    let request = json!({
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=12345;"},
            {"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "weather?"}]},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"z": 1, "a": 2}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}]},
        ],
        "tools": [
            {"name": "f", "input_schema": {"type": "object"}},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        "thinking": {"type": "disabled"},
    });
    let answer = message(&server, request).await;
    let (report, _server) = server.report().await;
    let expected = "<|endoftext|><|im_start|>tools\n[{\"type\": \"function\", \"function\": \
        {\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}}]<|im_end|>\n\
        <|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nweather?<|im_end|>\n\
        <|im_start|>assistant\n<tool_call>f{\"z\": 1, \"a\": 2}</tool_call><|im_end|>\n\
        <|im_start|>tool\nsunny<|im_end|>\n\
        <|im_start|>assistant\n<think>\n\n</think>\n\n";
    assert_eq!(report.request.prompt, ids(expected));
    // Marked for the cache: what was not found in it was written.
    let usage = &answer["usage"];
    let counts = [&usage["input_tokens"], &usage["cache_creation_input_tokens"]];
    assert_eq!(counts, [&json!(0), &json!(ids(expected).len() - 3)]);
}

#[tokio::test]
async fn last_words_of_the_assistant_begin_the_answer() {
    let server = Server::start([Act::Say(" so")]).await;
    let begun =
        json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "It is"}]);
    let answer = message(&server, json!({"messages": begun})).await;
    assert_eq!(answer["content"], json!([{"type": "text", "text": " so"}]));
    let (report, _server) = server.report().await;
    let expected = ids(&format!("{PROMPT}<think>\n\n</think>\n\nIt is"));
    assert_eq!(report.request.prompt, expected);
}

#[tokio::test]
async fn every_refusal_is_anthropics_error() {
    let options = ServerOptions { keys: ApiKeys::new(["secret"]).unwrap(), ..Default::default() };
    let server = Server::start_with([], 4, options).await;
    let denied = server.post(MESSAGES, &body(json!({}))).await;
    assert_eq!(error(denied, 401).await["type"], "authentication_error");
    let post = |path: &str, text: String| {
        let request = server.client.post(server.url(path)).bearer_auth("secret");
        request.body(text).send()
    };
    let unknown = post("/v1/messages/batches", "{}".into()).await.unwrap();
    assert_eq!(error(unknown, 404).await["type"], "not_found_error");
    for text in ["", "{", "[1]", &"[".repeat(100_000), "{\"messages\": 1}"] {
        for path in [MESSAGES, COUNT] {
            let error = error(post(path, text.to_owned()).await.unwrap(), 400).await;
            assert_eq!(error["type"], "invalid_request_error");
        }
    }
}

#[tokio::test]
async fn faults_name_the_place_in_their_message() {
    let server = Server::start([]).await;
    let check = async |extra: Value, place: &str| {
        let error = error(server.post(MESSAGES, &body(extra)).await, 400).await;
        assert!(error["message"].as_str().unwrap().contains(place), "{error}");
    };
    let image = json!([{"role": "user", "content": [{"type": "image", "source": {}}]}]);
    check(json!({"messages": image}), "messages[0].content[0].type").await;
    check(json!({"stop_sequences": ["x".repeat(2000)]}), "stop_sequences").await;
    check(json!({"top_p": 2}), "top_p").await;
    check(json!({"temperature": 3}), "temperature").await;
    check(json!({"max_tokens": 0}), "max_tokens").await;
    check(json!({"stream": "yes"}), "stream").await;
    check(json!({"system": [{"type": "image"}]}), "system[0].type").await;
}

#[tokio::test]
async fn wrong_kinds_anywhere_are_no_fault_of_the_server() {
    let server = Server::start([Act::Say("x")]).await;
    let sound = body(json!({
        "system": "s", "stop_sequences": ["x"], "stream": false, "top_k": 3,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "tools": [{"name": "f", "description": "d", "input_schema": {}}],
        "tool_choice": {"type": "auto"}, "thinking": {"type": "enabled", "budget_tokens": 5},
        "output_config": {"effort": "low"}, "metadata": {"user_id": "u"},
    }));
    let odd = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!(""),
        json!([[]]),
        json!({"type": {}}),
        json!([{"type": "tool_result"}]),
    ];
    for name in sound.as_object().unwrap().keys() {
        for value in &odd {
            let mut request = sound.clone();
            request[name] = value.clone();
            for path in [MESSAGES, COUNT] {
                let status = server.post(path, &request).await.status().as_u16();
                assert!(matches!(status, 200 | 400), "{status}: {request}");
            }
        }
    }
}

#[tokio::test]
async fn the_document_describes_both_routes() {
    let server = Server::start([]).await;
    let document = ok(server.get("/openapi.json").await).await;
    for path in [MESSAGES, COUNT] {
        let post = &document["paths"][path]["post"];
        assert!(post["requestBody"].is_object() && post["responses"]["400"].is_object(), "{path}");
    }
    let text = document.to_string();
    let references = text.split("\"#/components/schemas/").skip(1);
    for name in references.map(|rest| rest.split('"').next().unwrap()) {
        assert!(document["components"]["schemas"][name].is_object(), "{name} is not described");
    }
}

/// The prompt of the request with these `messages`.
async fn prompt(server: Server, messages: Value, extra: Value) -> (String, Server) {
    let mut asked = json!({"messages": messages});
    asked.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    message(&server, asked).await;
    let (report, server) = server.report().await;
    (tokenizer().decode(&report.request.prompt, false), server)
}

#[tokio::test]
async fn results_with_images_and_references_keep_the_conversation_alive() {
    let server = Server::start([Act::Say("a<|im_end|>")]).await;
    let result = json!({"type": "tool_result", "tool_use_id": "t", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        {"type": "tool_reference", "tool_name": "g"},
        {"type": "search_result", "title": "T", "source": "S",
         "content": [{"type": "text", "text": "found"}]},
        {"type": "browser_state", "tabs": []}]});
    let document = json!({"type": "document", "title": "D", "context": "C",
        "source": {"type": "text", "media_type": "text/plain", "data": "read me"}});
    let messages = json!([{"role": "user", "content": "hi"},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [result, document, {"type": "container_upload", "file_id": "x"}]}]);
    let (prompt, server) = prompt(server, messages, json!({})).await;
    for part in [
        "[image: not supported]",
        "called now: g",
        "T\nSource: S\n\nfound",
        "Document: D\nContext: C\n\nread me<|im_end|>",
    ] {
        assert!(prompt.contains(part), "{part} in {prompt}");
    }
    // A person can send the message again without the image.
    let image = json!({"type": "image", "source": {"type": "url", "url": "http://x"}});
    let refused = json!({"messages": [{"role": "user", "content": [image]}]});
    let refused = error(server.post(MESSAGES, &body(refused)).await, 400).await;
    assert!(refused["message"].as_str().unwrap().contains("messages[0].content[0].type"));
}

#[tokio::test]
async fn thinking_that_is_not_shown_is_in_its_signature() {
    let server = Server::start([Act::Say("<think>why</think>hello<|im_end|>")]).await;
    let thinking = json!({"type": "adaptive", "display": "omitted"});
    let answer = message(&server, json!({"thinking": thinking})).await;
    let block = answer["content"][0].clone();
    assert_eq!((&block["type"], &block["thinking"]), (&json!("thinking"), &json!("")));
    let events = events(&server, json!({"thinking": thinking})).await;
    let deltas: Vec<&str> =
        events.iter().filter_map(|event| event["delta"]["type"].as_str()).collect();
    assert_eq!(deltas[..2], ["signature_delta", "text_delta"]);
    let (_, server) = server.report().await;
    let (_, server) = server.report().await;
    let history = |block: Value| {
        json!([{"role": "user", "content": "hi"},
            {"role": "assistant", "content": [block, {"type": "text", "text": "hello"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}])
    };
    let shown = json!({"type": "thinking", "thinking": "why", "signature": ""});
    let (hidden, server) = prompt(server, history(block), json!({})).await;
    let (open, _server) = prompt(server, history(shown), json!({})).await;
    assert_eq!(hidden, open);
}

#[tokio::test]
async fn edits_remove_what_they_name_and_say_so() {
    let server = Server::start([Act::Say("a<|im_end|>")]).await;
    let turn = |id: &str| {
        [
            json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": id, "name": "f", "input": {}}]}),
            json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": format!("result {id}")}]}),
        ]
    };
    let mut messages = vec![json!({"role": "user", "content": "hi"})];
    messages.extend(["p", "q"].iter().flat_map(|id| turn(id)));
    let edit = json!({"type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": 10}, "keep": {"type": "tool_uses", "value": 1}});
    let edits = json!({"messages": messages, "context_management": {"edits": [edit]}});
    let answer = message(&server, edits.clone()).await;
    let applied = &answer["context_management"]["applied_edits"][0];
    assert_eq!(applied["cleared_tool_uses"], 1);
    let (report, server) = server.report().await;
    let told = tokenizer().decode(&report.request.prompt, false);
    assert!(!told.contains("result p") && told.contains("result q"), "{told}");
    let count = ok(server.post(COUNT, &body(edits)).await).await;
    assert_eq!(count["input_tokens"], report.request.prompt.len());
    assert!(count["context_management"]["original_input_tokens"].is_u64(), "{count}");
    let events = events(&server, json!({"context_management": {"edits": []}})).await;
    let last = &events[events.len() - 2];
    assert_eq!(last["context_management"], json!({"applied_edits": []}));
}

#[tokio::test]
async fn members_without_effect_are_named_in_the_answer() {
    let server = Server::start([Act::Say("a<|im_end|>")]).await;
    let asked = json!({"container": "c", "tools": [{"type": "web_search_20250305",
        "name": "web_search"}], "context_management": {"edits": [{"type": "compact_20260112"}]}});
    let answer = message(&server, asked.clone()).await;
    let named: Vec<&str> = answer["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|warning| warning.as_str()?.split(':').next())
        .collect();
    assert_eq!(named, ["container", "web_search_20250305", "compact_20260112"]);
    assert_eq!(events(&server, asked).await[0]["message"]["warnings"], answer["warnings"]);
    assert_eq!(message(&server, json!({})).await.get("warnings"), None);
}
