//! Items of a conversation that are not said: tools, settings, and the one that asks for a summary.

use crate::harness::{Server, error, ok, until};
use crate::support::{Act, tokenizer};
use serde_json::{Value, json};

const PATH: &str = "/v1/responses";
const COUNT: &str = "/v1/responses/input_tokens";
const CALL: Act =
    Act::Say("<tool_call>\n{\"name\": \"m__s\", \"arguments\": {}}\n</tool_call><|im_end|>");
const SAID: Act = Act::Say("hello<|im_end|>");

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// A function and a namespace with another.
fn tools() -> Value {
    json!([{"type": "function", "name": "f"},
        {"type": "namespace", "name": "m", "tools": [{"type": "function", "name": "s"}]}])
}

fn added() -> Value {
    json!({"type": "additional_tools", "role": "developer", "tools": tools()})
}

/// The response to `body`, which must succeed.
async fn ask(server: &Server, mut body: Value) -> Value {
    body["model"] = "any".into();
    ok(server.post(PATH, &body).await).await
}

async fn count(server: &Server, body: Value) -> u64 {
    ok(server.post(COUNT, &body).await).await["input_tokens"].as_u64().unwrap()
}

fn kinds(items: &Value) -> Vec<&str> {
    items.as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn tools_of_items_are_those_of_the_request() {
    let server = Server::start([CALL]).await;
    let response = ask(&server, json!({"input": [added(), user("hi")]})).await;
    assert_eq!(response.get("warnings"), None);
    let call = &response["output"][0];
    assert_eq!(
        (&call["type"], &call["name"], &call["namespace"]),
        (&json!("function_call"), &json!("s"), &json!("m"))
    );
    let search = json!({"type": "tool_search_call", "call_id": "s", "arguments": {},
                        "execution": "client", "status": "completed"});
    let found = json!({"type": "tool_search_output", "call_id": "s", "execution": "client",
                       "tools": [tools()[1]]});
    let input = json!([user("hi"), search, found]);
    let response = ask(&server, json!({"input": input, "tool_choice": "required"})).await;
    assert_eq!(response["output"][0]["namespace"], "m");
}

#[tokio::test]
async fn tools_of_items_are_in_the_prompt_as_at_the_top() {
    let server = Server::start([SAID]).await;
    let plain = count(&server, json!({"input": [user("hi")]})).await;
    let top = count(&server, json!({"input": [user("hi")], "tools": tools()})).await;
    let item = count(&server, json!({"input": [added(), user("hi")]})).await;
    assert!(top == item && item > plain, "{top} {item} {plain}");
    // What is kept of a turn has them too.
    let first = ask(&server, json!({"input": [added(), user("hi")]})).await;
    let second = json!({"input": "again", "previous_response_id": first["id"]});
    let next =
        json!([added(), user("hi"), {"role": "assistant", "content": "hello"}, user("again")]);
    assert_eq!(count(&server, second).await, count(&server, json!({"input": next})).await);
    let list =
        ok(server.get(&format!("{PATH}/{}/input_items", first["id"].as_str().unwrap())).await);
    assert_eq!(kinds(&list.await["data"]), ["message", "additional_tools"]);
}

#[tokio::test]
async fn settings_hold_from_their_item_on() {
    let server = Server::start([SAID]).await;
    let update = json!({"type": "configuration_update", "reasoning": {"effort": "none"},
        "text": {"format": {"type": "json_object"}}});
    let response = ask(
        &server,
        json!({"input": [update, user("hi")],
        "reasoning": {"effort": "high"}}),
    )
    .await;
    assert_eq!(response["reasoning"]["effort"], "none");
    assert_eq!(response["text"]["format"]["type"], "json_object");
    let (report, server) = server.report().await;
    let prompt = tokenizer().decode(&report.request.prompt, false);
    assert!(prompt.ends_with("assistant\n<think>\n\n</think>\n\n"), "{prompt}");
    let back = json!({"type": "configuration_update", "text": {"format": {"type": "text"}}});
    let next = json!({"input": [back, user("b")], "previous_response_id": response["id"]});
    let next = ask(&server, next).await;
    assert_eq!(next["text"]["format"]["type"], "text");
    assert_eq!(next["reasoning"]["effort"], "none");
}

#[tokio::test]
async fn a_trigger_gets_a_summary_in_place_of_an_answer() {
    let server = Server::start([Act::Say("<think>hm</think>Rex.<|im_end|>")]).await;
    let tool = json!({"type": "additional_tools", "role": "developer", "tools": [tools()[0]]});
    let input = json!([user("My dog is Rex."), {"role": "assistant", "content": "ok"},
        tool, {"type": "compaction_trigger"}]);
    let response = ask(
        &server,
        json!({"input": input, "tools": tools(), "tool_choice": "required",
        "text": {"format": {"type": "json_object"}}}),
    )
    .await;
    assert_eq!((kinds(&response["output"]), response.get("warnings")), (vec!["compaction"], None));
    assert_eq!(response["status"], "completed");
    let (report, server) = server.report().await;
    let asked = tokenizer().decode(&report.request.prompt, false);
    assert!(asked.contains("Summarize") && asked.contains("ok"), "{asked}");
    // The trigger is no item, and what it stands for is not told again.
    let path = format!("{PATH}/{}/input_items", response["id"].as_str().unwrap());
    let list = ok(server.get(&path).await).await;
    assert_eq!(kinds(&list["data"]), ["additional_tools", "message", "message"]);
    let next = json!({"input": "His name?", "previous_response_id": response["id"]});
    ask(&server, next).await;
    let (report, server) = server.report().await;
    let prompt = tokenizer().decode(&report.request.prompt, false);
    let expected = "user\nMy dog is Rex.\n\nThe conversation before this was replaced by a summary \
        of it:\n\nRex.\n\nHis name?<|im_end|>";
    assert!(prompt.contains(expected) && !prompt.contains("ok<|im_end|>"), "{prompt}");
    // Compacting keeps tools and settings.
    let body = json!({"model": "m", "input": [added(), user("a"),
        {"type": "configuration_update", "reasoning": {"effort": "low"}}]});
    let compacted = ok(server.post("/v1/responses/compact", &body).await).await;
    let expected = ["additional_tools", "message", "configuration_update", "compaction"];
    assert_eq!(kinds(&compacted["output"]), expected);
}

#[tokio::test]
async fn a_summary_is_streamed_as_one_item() {
    let server = Server::start([Act::Say("Rex"), Act::Say(".<|im_end|>")]).await;
    let body = json!({"model": "any", "stream": true,
                      "input": [user("a"), {"type": "compaction_trigger"}]});
    let text = server.post(PATH, &body).await.text().await.unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    let names: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.compaction.compacting",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(names, expected);
    let (added, done) = (&events[2]["item"], &events[4]["item"]);
    assert_eq!((&added["type"], &added["encrypted_content"]), (&json!("compaction"), &json!("")));
    assert_eq!(added["id"], done["id"]);
    assert_eq!(json!([done]), events[5]["response"]["output"]);
}

#[tokio::test]
async fn a_summary_is_made_in_the_background() {
    let server = Server::start([Act::Say("Rex.<|im_end|>")]).await;
    let body = json!({"background": true, "input": [user("a"), {"type": "compaction_trigger"}]});
    let response = ask(&server, body).await;
    let path = format!("{PATH}/{}", response["id"].as_str().unwrap());
    until("the response ends", async || ok(server.get(&path).await).await["status"] == "completed")
        .await;
    assert_eq!(kinds(&ok(server.get(&path).await).await["output"]), ["compaction"]);
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_by_name() {
    let server = Server::start([]).await;
    for (input, param) in [
        (json!([{"type": "compaction_trigger"}, user("a")]), "input[0]"),
        (json!([{"type": "compaction_trigger"}]), "input"),
        (
            json!([{"type": "additional_tools", "tools": [{"type": "function"}]}, user("a")]),
            "input[0].tools[0].name",
        ),
        (
            json!([{"type": "configuration_update", "text": {"format": {"type": "x"}}}, user("a")]),
            "input[0].text.format.type",
        ),
    ] {
        let body = json!({"model": "any", "input": input});
        assert_eq!(error(server.post(PATH, &body).await, 400).await["param"], param, "{input}");
    }
    let body = |kind: &str| {
        json!({"model": "any", "input": "a",
                       "context_management": [{"type": kind, "compact_threshold": 5}]})
    };
    let error = error(server.post(PATH, &body("x")).await, 400).await;
    assert_eq!(error["param"], "context_management[0].type");
}

#[tokio::test]
async fn members_without_effect_are_named() {
    let server = Server::start([SAID]).await;
    for (name, value) in [
        ("context_management", json!([{"type": "compaction", "compact_threshold": 5}])),
        ("moderation", json!({"model": "m"})),
        ("prompt_cache_options", json!({"mode": "explicit"})),
        ("background_options", json!({"completion_window": "2h"})),
    ] {
        let response = ask(&server, json!({"input": "hi", (name): value})).await;
        let warning = response["warnings"][0].as_str().unwrap();
        assert!(warning.starts_with(name), "{warning}");
    }
    let response = ask(&server, json!({"input": "hi", "context_management": []})).await;
    assert_eq!(response.get("warnings"), None);
}
