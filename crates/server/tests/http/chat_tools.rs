//! `POST /v1/chat/completions`: tool calls, whole and in pieces.

use crate::harness::{Server, chat_body, error};
use crate::support::{Act, ids, scripted_template};
use serde_json::{Value, json};
use server::ServerOptions;

const CALL: &str =
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, \"é\"]}}\n</tool_call>";
const BOTH: &str = "Well<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>\
    <tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call><|im_end|>";

/// Short, as the context is.
fn tools() -> Value {
    json!([{"type": "function", "function": {"name": "f"}}])
}

/// Calls of a stream, put together as clients do.
fn joined(events: &[Value]) -> Vec<Value> {
    let mut calls: Vec<Value> = Vec::new();
    let deltas = events.iter().filter_map(|it| it["choices"][0]["delta"]["tool_calls"].as_array());
    for delta in deltas.flatten() {
        let index = delta["index"].as_u64().unwrap() as usize;
        if index == calls.len() {
            let mut call = delta.clone();
            call.as_object_mut().unwrap().shift_remove("index");
            calls.push(call);
        } else {
            let told = calls[index]["function"]["arguments"].as_str().unwrap();
            let more = delta["function"]["arguments"].as_str().unwrap();
            calls[index]["function"]["arguments"] = format!("{told}{more}").into();
        }
    }
    calls
}

fn without_ids(calls: &Value) -> Value {
    let mut calls = calls.clone();
    for call in calls.as_array_mut().unwrap() {
        let id = call.as_object_mut().unwrap().shift_remove("id").unwrap();
        assert!(id.as_str().unwrap().starts_with("call_"), "{id}");
    }
    calls
}

fn call(name: &str, arguments: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "arguments": arguments}})
}

#[tokio::test]
async fn calls_are_apart_from_content() {
    let server = Server::start([Act::Say(BOTH)]).await;
    let answer = server.chat(json!({"tools": tools()})).await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], "Well");
    let expected = json!([call("f", "{\"x\":1}"), call("f", "{}")]);
    let found: Vec<Value> = without_ids(&choice["message"]["tool_calls"])
        .as_array()
        .unwrap()
        .iter()
        .map(|call| {
            let mut call = call.clone();
            let arguments = call["function"]["arguments"].as_str().unwrap();
            let arguments: Value = serde_json::from_str(arguments).unwrap();
            call["function"]["arguments"] = arguments.to_string().into();
            call
        })
        .collect();
    assert_eq!(Value::from(found), expected);
}

#[tokio::test]
async fn streamed_fragments_make_the_whole_calls() {
    for script in [CALL, BOTH] {
        let server = Server::start([Act::Say(script)]).await;
        let whole = server.chat(json!({"tools": tools()})).await;
        let message = &whole["choices"][0]["message"];
        let options = json!({"include_usage": true});
        let events = server.chat_events(json!({"tools": tools(), "stream_options": options})).await;
        let calls = Value::from(joined(&events));
        assert_eq!(without_ids(&calls), without_ids(&message["tool_calls"]));
        let told =
            |event: &Value| event["choices"][0]["delta"]["content"].as_str().map(String::from);
        let content: String = events.iter().filter_map(told).collect();
        assert_eq!(content, message["content"].as_str().unwrap_or_default());
        let [.., last, usage] = &events[..] else { panic!("{events:?}") };
        assert_eq!(last["choices"][0]["finish_reason"], "tool_calls");
        assert_eq!(usage["usage"], whole["usage"]);
    }
}

#[tokio::test]
async fn custom_tools_are_called_with_a_text() {
    let said = "<tool_call>\n{\"name\": \"c\", \"arguments\": {\"input\": \"a\\n\\\"b\\\"\"}}\n</tool_call>";
    // The description of the tool needs a longer context than that of other tests.
    let template = "{% for message in messages %}{{ message.content }}\n{% endfor %}";
    let scripted = scripted_template(template, vec![Act::Say(said)]);
    let server = Server::serve(scripted, ServerOptions::default());
    let grammar = json!({"type": "grammar", "grammar": {"syntax": "regex", "definition": "a"}});
    let tools = json!([{"type": "custom", "custom": {"name": "c", "format": grammar}}]);
    let whole = server.chat(json!({ "tools": tools })).await;
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    let call = json!({"type": "custom", "custom": {"name": "c", "input": "a\n\"b\""}});
    assert_eq!(without_ids(&choice["message"]["tool_calls"]), json!([call]));
    let warnings = json!(["c: the grammar is told to the model and not enforced"]);
    assert_eq!(whole["warnings"], warnings);
    let events = server.chat_events(json!({ "tools": tools })).await;
    assert_eq!(events[0]["warnings"], warnings);
    assert!(events[1..].iter().all(|event| event.get("warnings").is_none()));
    let deltas = events.iter().filter_map(|it| it["choices"][0]["delta"]["tool_calls"].as_array());
    let deltas: Vec<&Value> = deltas.flatten().collect();
    assert_eq!((&deltas[0]["type"], &deltas[0]["custom"]["name"]), (&json!("custom"), &json!("c")));
    let input = deltas.iter().filter_map(|delta| delta["custom"]["input"].as_str());
    assert_eq!(input.collect::<String>(), "a\n\"b\"");
    assert!(deltas.iter().all(|delta| delta.get("function").is_none()));
}

#[tokio::test]
async fn an_answer_that_is_a_call_has_no_content() {
    let server = Server::start([Act::Say(CALL)]).await;
    let answer = server.chat(json!({"tools": tools()})).await;
    let message = &answer["choices"][0]["message"];
    assert!(message["content"].is_null(), "{message}");
    let arguments = message["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert_eq!(arguments, json!({"x": [1, "é"]}));
}

#[tokio::test]
async fn broken_calls_are_content_and_no_calls() {
    let broken = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": ]}}\n</tool_call>";
    let server = Server::start([Act::Say(broken), Act::Say("<|im_end|>")]).await;
    let answer = server.chat(json!({"tools": tools()})).await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "stop");
    assert!(choice["message"].get("tool_calls").is_none(), "{choice}");
    assert!(choice["message"]["content"].as_str().unwrap().contains("arguments"), "{choice}");
    let events = server.chat_events(json!({"tools": tools()})).await;
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn without_tools_the_syntax_of_calls_is_text() {
    let server = Server::start([Act::Say(CALL)]).await;
    for extra in [json!({}), json!({"tools": tools(), "tool_choice": "none"})] {
        let answer = server.chat(extra).await;
        let choice = &answer["choices"][0];
        assert_eq!(choice["message"]["content"], CALL);
        assert_eq!(choice["finish_reason"], "stop");
    }
}

#[tokio::test]
async fn functions_are_called_by_their_old_name() {
    let server = Server::start([Act::Say(CALL)]).await;
    let asked = json!({"functions": [{"name": "f"}]});
    let answer = server.chat(asked.clone()).await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "function_call");
    assert_eq!(choice["message"]["function_call"]["name"], "f");
    assert!(choice["message"].get("tool_calls").is_none(), "{choice}");
    let events = server.chat_events(asked).await;
    let pieces: Vec<&Value> = events
        .iter()
        .map(|event| &event["choices"][0]["delta"]["function_call"])
        .filter(|piece| piece.is_object())
        .collect();
    assert_eq!(pieces[0], &json!({"name": "f", "arguments": ""}));
    let text: String = pieces.iter().map(|piece| piece["arguments"].as_str().unwrap()).collect();
    assert_eq!(text, choice["message"]["function_call"]["arguments"].as_str().unwrap());
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "function_call");
}

#[tokio::test]
async fn histories_of_any_quality_are_rendered() {
    let server = Server::start([Act::Say("x")]).await;
    let past = |arguments: Value| {
        let function = json!({"name": "f", "arguments": arguments});
        json!({"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": function}]})
    };
    let result = json!({"role": "tool", "tool_call_id": "1", "content": [
        {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]});
    let user = json!({"role": "user", "content": "go"});
    for arguments in [json!("{broken"), json!(""), json!("[1]"), json!(null), json!("\u{0}")] {
        let messages = json!([{"role": "developer", "content": "d"}, user, user, past(arguments),
            result, {"role": "system", "content": "mid"}, user]);
        server.chat(json!({ "messages": messages })).await;
    }
}

#[tokio::test]
async fn calls_that_cannot_be_forced_are_refused() {
    let server = Server::start([]).await;
    let check = async |extra: Value, param: &str| {
        let error = error(server.post("/v1/chat/completions", &chat_body(extra)).await, 400).await;
        assert_eq!(error["param"], param, "{error}");
    };
    check(json!({"tool_choice": "required"}), "tool_choice").await;
    let absent = json!({"type": "function", "function": {"name": "absent"}});
    let absent = json!({"tools": tools(), "tool_choice": absent});
    check(absent, "tool_choice.function.name").await;
}

#[tokio::test]
async fn a_format_is_taken_beside_tools_and_forced_calls() {
    let server = Server::start([Act::Say(CALL), Act::Say("<|im_end|>")]).await;
    for choice in ["auto", "required", "none"] {
        let form = json!({"type": "json_object"});
        let body = json!({"tools": tools(), "tool_choice": choice, "response_format": form});
        let answer = server.chat(body).await;
        let calls = &answer["choices"][0]["message"]["tool_calls"];
        assert_eq!(calls.is_array(), choice != "none", "{answer}");
    }
}

#[tokio::test]
async fn a_call_that_is_cut_stays_a_call_whole_and_in_pieces() {
    let server = Server::start([Act::Say(CALL), Act::Say("<|im_end|>")]).await;
    let mut begun = 0;
    for limit in 1..ids(CALL).len() {
        let body = json!({"tools": tools(), "max_tokens": limit});
        let whole = server.chat(body.clone()).await;
        let (message, reason) =
            (&whole["choices"][0]["message"], &whole["choices"][0]["finish_reason"]);
        let events = server.chat_events(body).await;
        let text =
            |event: &Value| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned);
        let content: String = events.iter().filter_map(text).collect();
        assert_eq!(content, message["content"].as_str().unwrap_or_default());
        assert_eq!((reason, content.as_str()), (&json!("length"), ""), "{limit}: {whole}");
        let calls = Value::from(joined(&events));
        match message.get("tool_calls") {
            Some(whole) => {
                assert_eq!(without_ids(whole), without_ids(&calls), "{limit}");
                begun += 1;
            }
            None => assert_eq!(calls, json!([])),
        }
    }
    assert!(begun > 5);
}
