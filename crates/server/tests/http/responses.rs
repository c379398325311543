//! The Responses API over the wire.

use crate::harness::{Server, error, ok, until};
use crate::support::{Act, CONTEXT, tokenizer};
use reqwest::Response;
use serde_json::{Value, json};
use server::ServerOptions;
use std::time::Duration;

const PATH: &str = "/v1/responses";

/// A request with `extra` members.
fn body(extra: Value) -> Value {
    let mut body = json!({"model": "any", "input": "hi"});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// The response to a request, which must succeed.
async fn ask(server: &Server, extra: Value) -> Value {
    ok(server.post(PATH, &body(extra)).await).await
}

/// The events of a stream, named as they are typed and numbered from `first` on.
async fn events(response: Response, first: usize) -> Vec<Value> {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = response.text().await.unwrap();
    let mut all = Vec::new();
    for event in text.split_terminator("\n\n").filter(|event| !event.starts_with(':')) {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        assert_eq!(data["sequence_number"], first + all.len(), "{text}");
        all.push(data);
    }
    all
}

async fn stream(server: &Server, mut extra: Value) -> Vec<Value> {
    extra["stream"] = true.into();
    events(server.post(PATH, &body(extra)).await, 0).await
}

fn text(response: &Value) -> &str {
    let items = response["output"].as_array().unwrap();
    let message = items.iter().find(|item| item["type"] == "message").unwrap();
    message["content"][0]["text"].as_str().unwrap()
}

fn id(response: &Value) -> &str {
    response["id"].as_str().unwrap()
}

#[tokio::test]
async fn a_response_has_its_items_and_counts() {
    // The effort has the template open the reasoning.
    let server = Server::start([Act::Say("why</think>hello<|im_end|>")]).await;
    let asked = json!({"instructions": "be", "metadata": {"a": "b"}, "temperature": 0.25,
        "presence_penalty": 0.5,
        "reasoning": {"effort": "low"}, "user": "u", "truncation": "auto"});
    let response = ask(&server, asked).await;
    assert!(id(&response).starts_with("resp_"));
    for (member, expected) in [
        ("object", json!("response")),
        ("status", json!("completed")),
        ("error", json!(null)),
        ("incomplete_details", json!(null)),
        ("instructions", json!("be")),
        ("model", json!("test/model")),
        ("metadata", json!({"a": "b"})),
        ("temperature", json!(0.25)),
        ("top_p", json!(1.0)),
        ("presence_penalty", json!(0.5)),
        ("frequency_penalty", json!(0.0)),
        ("tool_choice", json!("auto")),
        ("tools", json!([])),
        ("parallel_tool_calls", json!(true)),
        ("user", json!("u")),
        ("truncation", json!("disabled")),
        ("background", json!(false)),
        ("store", json!(true)),
        ("reasoning", json!({"effort": "low", "summary": null})),
        ("text", json!({"format": {"type": "text"}, "verbosity": "medium"})),
    ] {
        assert_eq!(response[member], expected, "{member}");
    }
    let [reasoning, message] = response["output"].as_array().unwrap().as_slice() else {
        panic!("{response}")
    };
    assert_eq!(reasoning["content"], json!([{"type": "reasoning_text", "text": "why"}]));
    assert_eq!(message["role"], "assistant");
    assert_eq!(text(&response), "hello");
    let usage = &response["usage"];
    assert_eq!(usage["input_tokens_details"]["cached_tokens"], 3);
    assert!(usage["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 0);
    let sum = usage["input_tokens"].as_u64().unwrap() + usage["output_tokens"].as_u64().unwrap();
    assert_eq!(usage["total_tokens"], sum);
    assert!(response["warnings"][0].as_str().unwrap().starts_with("truncation"));
}

#[tokio::test]
async fn penalties_reach_the_sampler() {
    let server = Server::start([Act::Say("x")]).await;
    let asked = json!({"presence_penalty": 0.5, "frequency_penalty": -0.25});
    let response = ask(&server, asked).await;
    assert_eq!(response["frequency_penalty"], -0.25);
    let (report, _server) = server.report().await;
    let sampling = &report.request.sampling;
    assert_eq!((sampling.presence_penalty, sampling.frequency_penalty), (0.5, -0.25));
}

#[tokio::test]
async fn a_format_is_shown_with_all_its_members() {
    let server = Server::start([Act::Say("{}")]).await;
    let format = json!({"type": "json_schema", "name": "n", "schema": {"type": "object"}});
    let response = ask(&server, json!({"text": {"format": format}})).await;
    let mut expected = format;
    (expected["description"], expected["strict"]) = (json!(null), json!(false));
    assert_eq!(response["text"]["format"], expected);
}

#[tokio::test]
async fn an_answer_that_ends_at_once_is_an_empty_message() {
    let server = Server::start([Act::Say("<|im_end|>")]).await;
    let whole = ask(&server, json!({})).await;
    assert_eq!((text(&whole), &whole["status"]), ("", &json!("completed")));
    let events = stream(&server, json!({})).await;
    assert_eq!(text(&events.last().unwrap()["response"]), "");
    let kept = ok(server.get(&format!("{PATH}/{}", id(&whole))).await).await;
    assert_eq!(kept, whole);
    let next = json!({"previous_response_id": id(&whole), "input": "on"});
    ask(&server, next).await;
    let (_, server) = server.report().await;
    let (_, server) = server.report().await;
    let (report, _server) = server.report().await;
    let prompt = tokenizer().decode(&report.request.prompt, false);
    assert!(prompt.contains("<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\non"), "{prompt}");
}

#[tokio::test]
async fn summaries_come_back_as_the_reasoning_that_they_are() {
    let server = Server::start([Act::Say("<think>why</think>hello<|im_end|>")]).await;
    let whole = ask(&server, json!({"reasoning": {"summary": "auto"}})).await;
    assert_eq!(whole["reasoning"]["summary"], "auto");
    let summary = json!([{"type": "summary_text", "text": "why"}]);
    assert_eq!(whole["output"][0]["summary"], summary);
    let (_, mut server) = server.report().await;
    // As clients send the item back: whole, with its summary alone, or by its id.
    let mut prompts = Vec::new();
    let mut bare = whole["output"][0].clone();
    bare["content"] = json!(null);
    let reference = json!({"type": "item_reference", "id": whole["output"][0]["id"]});
    for item in [whole["output"][0].clone(), bare, reference] {
        let input = json!([{"role": "user", "content": "hi"}, item, whole["output"][1],
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "1"}]);
        ask(&server, json!({"input": input})).await;
        let (report, same) = server.report().await;
        prompts.push(tokenizer().decode(&report.request.prompt, false));
        server = same;
    }
    assert!(prompts.iter().all(|prompt| *prompt == prompts[0]), "{prompts:?}");
}

#[tokio::test]
async fn outputs_without_their_call_are_refused() {
    let server = Server::start([Act::Say("x")]).await;
    let stray = json!([{"role": "user", "content": "q"},
        {"type": "function_call_output", "call_id": "call_9", "output": "1"}]);
    let error = error(server.post(PATH, &body(json!({"input": stray}))).await, 400).await;
    assert_eq!(error["param"], "input");
    assert!(error["message"].as_str().unwrap().contains("call_9"), "{error}");
}

#[tokio::test]
async fn a_stream_ends_with_what_the_whole_answer_says() {
    let server = Server::start([Act::Say("<think>why</think>hello<|im_end|>")]).await;
    let whole = ask(&server, json!({})).await;
    let events = stream(&server, json!({})).await;
    assert_eq!(events[0]["type"], "response.created");
    assert_eq!(events[0]["response"]["status"], "in_progress");
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.completed");
    assert_eq!(
        (text(&last["response"]), &last["response"]["usage"]),
        (text(&whole), &whole["usage"])
    );
}

#[tokio::test]
async fn limits_stops_and_faults_have_their_last_events() {
    let server = Server::start([Act::Say("hello world")]).await;
    let cut = ask(&server, json!({"max_output_tokens": 1})).await;
    assert_eq!(
        (&cut["status"], &cut["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    let events = stream(&server, json!({"max_output_tokens": 1})).await;
    assert_eq!(events.last().unwrap()["type"], "response.incomplete");
    let stopped = ask(&server, json!({"stop": "o w"})).await;
    assert_eq!((text(&stopped), &stopped["status"]), ("hell", &json!("completed")));

    let server = Server::start([Act::Say("hello"), Act::Fail("gone")]).await;
    let events = stream(&server, json!({})).await;
    let [error, failed] = &events[events.len() - 2..] else { panic!("{events:?}") };
    assert_eq!((&error["type"], &error["message"]), (&json!("error"), &json!("gone")));
    assert_eq!(failed["type"], "response.failed");
    assert_eq!(failed["response"]["error"]["code"], "server_error");
    let kept = ok(server.get(&format!("{PATH}/{}", id(&failed["response"]))).await).await;
    assert_eq!(kept["status"], "failed");
    self::error(server.post(PATH, &body(json!({}))).await, 500).await;
}

#[tokio::test]
async fn log_probabilities_come_if_they_are_included() {
    let server = Server::start([Act::Say("<think>a</think>hi")]).await;
    let response =
        ask(&server, json!({"include": ["message.output_text.logprobs"], "top_logprobs": 2})).await;
    let tokens = response["output"][1]["content"][0]["logprobs"].as_array().unwrap();
    let joined: String = tokens.iter().filter_map(|token| token["token"].as_str()).collect();
    assert!(joined.ends_with("hi") && !joined.contains("<think>"), "{joined}");
    assert_eq!(tokens[0]["top_logprobs"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn the_next_turn_begins_with_the_tokens_of_the_last() {
    let server = Server::start([Act::Say("hello<|im_end|>")]).await;
    let first = ask(&server, json!({"instructions": "be"})).await;
    let (before, server) = server.report().await;
    let again = json!({"previous_response_id": id(&first), "input": "go", "instructions": "be"});
    let second = ask(&server, again).await;
    let (after, server) = server.report().await;
    let text = |ids: &[u32]| tokenizer().decode(ids, false);
    let expected = text(&before.request.prompt)
        + "hello<|im_end|>\n<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(text(&after.request.prompt), expected);
    assert_eq!(second["previous_response_id"], first["id"]);
    // Instructions are the last request's own.
    ask(&server, json!({"previous_response_id": id(&second), "input": "on"})).await;
    let (last, _server) = server.report().await;
    assert!(!text(&last.request.prompt).contains("system"));
    assert!(text(&last.request.prompt).contains("go<|im_end|>"));
}

#[tokio::test]
async fn kept_responses_can_be_read_listed_and_removed() {
    let server = Server::start([Act::Say("hello<|im_end|>")]).await;
    let first = ask(&server, json!({})).await;
    let next = json!({"previous_response_id": id(&first), "input": [
        {"role": "user", "content": "more", "id": "msg_mine"}]});
    let second = ask(&server, next).await;
    let url = format!("{PATH}/{}", id(&second));
    assert_eq!(ok(server.get(&url).await).await, second);
    let page = ok(server.get(&format!("{url}/input_items?order=asc")).await).await;
    let texts: Vec<&Value> =
        page["data"].as_array().unwrap().iter().map(|item| &item["content"][0]["text"]).collect();
    assert_eq!(texts, ["hi", "hello", "more"]);
    let page = ok(server.get(&format!("{url}/input_items?limit=1")).await).await;
    assert_eq!((&page["first_id"], &page["has_more"]), (&json!("msg_mine"), &json!(true)));
    error(server.get(&format!("{url}/input_items?limit=0")).await, 400).await;
    error(server.get(&format!("{url}/input_items?limit=x")).await, 400).await;
    let gone = server.client.delete(server.url(&url)).send().await.unwrap();
    let expected = json!({"id": id(&second), "object": "response", "deleted": true});
    assert_eq!(ok(gone).await, expected);
    for path in [url.clone(), format!("{url}/input_items"), format!("{PATH}/%ff")] {
        let status = if path.contains('%') { 400 } else { 404 };
        error(server.get(&path).await, status).await;
    }
    error(server.client.delete(server.url(&url)).send().await.unwrap(), 404).await;
    error(server.post(&format!("{url}/cancel"), &json!({})).await, 404).await;
}

#[tokio::test]
async fn what_is_not_to_be_kept_is_not() {
    let server = Server::start([Act::Say("hello")]).await;
    let response = ask(&server, json!({"store": false})).await;
    error(server.get(&format!("{PATH}/{}", id(&response))).await, 404).await;
    let next = body(json!({"previous_response_id": id(&response)}));
    let error = error(server.post(PATH, &next).await, 400).await;
    assert_eq!(
        (&error["code"], &error["param"]),
        (&json!("previous_response_not_found"), &json!("previous_response_id"))
    );
}

#[tokio::test]
async fn a_key_sees_only_what_it_asked() {
    let server = Server::start([Act::Say("hello")]).await;
    let with_key = |request: reqwest::RequestBuilder, key: &str| request.bearer_auth(key).send();
    let asked = server.client.post(server.url(PATH)).json(&body(json!({"user": "u"})));
    let response = ok(with_key(asked, "mine").await.unwrap()).await;
    let url = server.url(&format!("{PATH}/{}", id(&response)));
    ok(with_key(server.client.get(&url), "mine").await.unwrap()).await;
    error(with_key(server.client.get(&url), "yours").await.unwrap(), 404).await;
    error(with_key(server.client.delete(&url), "yours").await.unwrap(), 404).await;
    let item = response["output"][0]["id"].clone();
    let refer = body(json!({"input": [{"type": "item_reference", "id": item},
                                      {"role": "user", "content": "q"}]}));
    let post = || server.client.post(server.url(PATH)).json(&refer);
    ok(with_key(post(), "mine").await.unwrap()).await;
    let error = error(with_key(post(), "yours").await.unwrap(), 400).await;
    assert_eq!(error["param"], "input[0].id");
}

#[tokio::test]
async fn only_so_many_responses_are_kept() {
    let options = ServerOptions { stored_responses: 2, ..ServerOptions::default() };
    let server = Server::start_with([Act::Say("hello")], 4, options).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(id(&ask(&server, json!({})).await).to_owned());
    }
    error(server.get(&format!("{PATH}/{}", ids[0])).await, 404).await;
    for id in &ids[1..] {
        ok(server.get(&format!("{PATH}/{id}")).await).await;
    }
}

#[tokio::test]
async fn background_responses_are_polled_to_their_end() {
    let server = Server::start([Act::Pause(Duration::from_millis(300)), Act::Say("hello")]).await;
    let mut response = ask(&server, json!({"background": true})).await;
    assert_eq!((&response["status"], &response["background"]), (&json!("queued"), &json!(true)));
    let url = format!("{PATH}/{}", id(&response));
    let next = body(json!({"previous_response_id": id(&response)}));
    assert_eq!(error(server.post(PATH, &next).await, 400).await["param"], "previous_response_id");
    until("the response has ended", async || {
        response = ok(server.get(&url).await).await;
        !["queued", "in_progress"].map(Value::from).contains(&response["status"])
    })
    .await;
    assert_eq!((&response["status"], text(&response)), (&json!("completed"), "hello"));
    // To cancel what has ended changes nothing.
    let cancelled = ok(server.post(&format!("{url}/cancel"), &json!({})).await).await;
    assert_eq!(cancelled, response);
    error(server.get(&format!("{url}?stream=true")).await, 400).await;
}

#[tokio::test]
async fn cancelling_ends_the_work_and_leaves_what_was_said() {
    let tick = Act::Pause(Duration::from_millis(20));
    let script: Vec<Act> = std::iter::repeat_n([Act::Say("x"), tick], 200).flatten().collect();
    let server = Server::start(script).await;
    let response = ask(&server, json!({"background": true})).await;
    until("tokens are generated", async || {
        server.stats().await["tokens"]["generated"].as_u64() > Some(2)
    })
    .await;
    let url = format!("{PATH}/{}", id(&response));
    let cancelled = ok(server.post(&format!("{url}/cancel"), &json!({})).await).await;
    assert_eq!(cancelled["status"], "cancelled");
    let said = text(&cancelled).len();
    let (report, server) = server.report().await;
    assert!(report.cancelled && report.sent <= said + 2, "{} after {said}", report.sent);
    assert_eq!(ok(server.get(&url).await).await, cancelled);

    let whole = ask(&server, json!({"max_output_tokens": 1})).await;
    error(server.post(&format!("{PATH}/{}/cancel", id(&whole)), &json!({})).await, 400).await;
}

#[tokio::test]
async fn removing_ends_the_work_too() {
    let server = Server::start([Act::Pause(Duration::from_secs(30))]).await;
    let response = ask(&server, json!({"background": true})).await;
    let url = format!("{PATH}/{}", id(&response));
    ok(server.client.delete(server.url(&url)).send().await.unwrap()).await;
    let (report, server) = server.report().await;
    assert!(report.cancelled);
    error(server.get(&url).await, 404).await;
}

#[tokio::test]
async fn background_streams_can_be_left_and_taken_up_again() {
    let tick = Act::Pause(Duration::from_millis(20));
    let script: Vec<Act> = std::iter::repeat_n([Act::Say("x"), tick], 20).flatten().collect();
    let server = Server::start(script).await;
    let asked = body(json!({"background": true, "stream": true}));
    let mut left = server.post(PATH, &asked).await;
    let first = String::from_utf8(left.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    drop(left);
    let data = first.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let created: Value = serde_json::from_str(data).unwrap();
    assert_eq!(created["response"]["status"], "queued");
    let url = format!("{PATH}/{}?stream=true", id(&created["response"]));
    let all = events(server.get(&url).await, 0).await;
    assert_eq!(all[1]["type"], "response.queued");
    assert_eq!(all[2]["type"], "response.in_progress");
    assert_eq!(text(&all.last().unwrap()["response"]), "x".repeat(20));
    let rest = events(server.get(&format!("{url}&starting_after=6")).await, 7).await;
    assert_eq!(rest, all[7..]);
    assert!(events(server.get(&format!("{url}&starting_after=9999")).await, 0).await.is_empty());
}

#[tokio::test]
async fn silence_is_bridged_by_events() {
    let options = ServerOptions { ping_interval: Duration::from_millis(20), ..Default::default() };
    let script = [Act::Pause(Duration::from_millis(200)), Act::Say("x")];
    let server = Server::start_with(script, 4, options).await;
    let events = stream(&server, json!({})).await;
    let pings = events.iter().filter(|event| event["type"] == "response.in_progress").count();
    assert!(pings >= 3, "{pings}");
}

#[tokio::test]
async fn prompts_are_counted_without_an_answer() {
    let server = Server::start([Act::Say("x")]).await;
    let path = format!("{PATH}/input_tokens");
    let counted = ok(server.post(&path, &body(json!({}))).await).await;
    assert_eq!(counted["object"], "response.input_tokens");
    assert!(server.no_report());
    let answered = ask(&server, json!({})).await;
    assert_eq!(counted["input_tokens"], answered["usage"]["input_tokens"]);
    let long = json!({"input": "x".repeat(CONTEXT)});
    let counted = ok(server.post(&path, &body(long.clone())).await).await;
    assert!(counted["input_tokens"].as_u64().unwrap() > CONTEXT as u64);
    let error = error(server.post(PATH, &body(long)).await, 400).await;
    assert_eq!(
        (&error["code"], &error["param"]),
        (&json!("context_length_exceeded"), &json!("input"))
    );
    assert_eq!(error["n_prompt_tokens"], counted["input_tokens"]);
}

#[tokio::test]
async fn faults_name_their_field() {
    let server = Server::start([]).await;
    for (extra, param) in [
        (json!({"input": null}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": 3}), "input"),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
            "input[0].content[0].type",
        ),
        (json!({"conversation": 3}), "conversation"),
        (json!({"conversation": {"name": "x"}}), "conversation"),
        (json!({"conversation": "conv_1", "previous_response_id": "resp_1"}), "conversation"),
        (json!({"prompt": {"id": "p"}}), "prompt"),
        (json!({"previous_response_id": "resp_none"}), "previous_response_id"),
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
        (json!({"max_output_tokens": "many"}), "max_output_tokens"),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"temperature": -1}), "temperature"),
        (json!({"top_logprobs": 21}), "top_logprobs"),
        (json!({"tools": {}}), "tools"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].name"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"tool_choice": {"type": "function", "name": "f"}}), "tool_choice.name"),
        (json!({"reasoning": {"effort": 3}}), "reasoning.effort"),
        (json!({"reasoning": {"summary": "long"}}), "reasoning.summary"),
        (json!({"text": {"format": {"type": "grammar"}}}), "text.format.type"),
        (json!({"truncation": "some"}), "truncation"),
        (json!({"include": "all"}), "include"),
        (json!({"metadata": []}), "metadata"),
        (json!({"background": true, "store": false}), "background"),
        (json!({"stream": "yes"}), "stream"),
    ] {
        let error = error(server.post(PATH, &body(extra.clone())).await, 400).await;
        assert_eq!(error["param"], param, "{extra}: {error}");
    }
    let unknown = body(json!({"conversation": "conv_1"}));
    let error = error(server.post(PATH, &unknown).await, 404).await;
    assert_eq!(error["code"], "conversation_not_found");
    assert_eq!(error["param"], "conversation");
    assert!(server.no_report());
}

#[tokio::test]
async fn nothing_in_any_member_is_a_server_error() {
    let server = Server::start([Act::Say("x<|im_end|>")]).await;
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!(""),
        json!("x"),
        json!([]),
        json!({}),
        json!([null]),
        json!([{"type": "x"}]),
        json!({"type": "x"}),
        json!([[]]),
        json!(vec![json!({"type": "web_search"}); 2000]),
        deep,
        json!([{"type": "namespace", "name": "n", "tools": [{"type": "y"}]}]),
        json!([{"type": "reasoning", "content": 3}]),
        json!([{"type": "item_reference"}]),
    ];
    let members = "model input instructions previous_response_id conversation prompt tools \
        tool_choice parallel_tool_calls max_output_tokens max_tool_calls top_logprobs include \
        reasoning text truncation store background stream metadata user safety_identifier \
        prompt_cache_key service_tier chat_template_kwargs stream_options temperature top_p \
        context_management moderation unheard_of";
    for member in members.split_whitespace() {
        for value in &values {
            let response = server.post(PATH, &body(json!({ member: value }))).await;
            let status = response.status();
            let unknown = member == "conversation" && status == 404;
            assert!(unknown || status == 200 || status == 400, "{member} {value}: {status}");
        }
    }
}

#[tokio::test]
async fn tools_and_effort_reach_the_template() {
    let server = Server::start([Act::Say("x")]).await;
    let tools = json!([{"type": "function", "name": "f"}, {"type": "web_search"}]);
    let response = ask(&server, json!({"tools": tools, "reasoning": {"effort": "none"}})).await;
    let shown = json!([{"type": "function", "name": "f", "description": null, "parameters": null,
        "strict": null}, {"type": "web_search"}]);
    assert_eq!(response["tools"], shown);
    assert!(response["warnings"][0].as_str().unwrap().starts_with("web_search"));
    let (report, _server) = server.report().await;
    let prompt = tokenizer().decode(&report.request.prompt, false);
    let told = "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]<|im_end|>";
    assert!(prompt.contains(told), "{prompt}");
    assert!(prompt.ends_with("assistant\n<think>\n\n</think>\n\n"), "{prompt}");
}

#[tokio::test]
async fn the_document_knows_every_route() {
    let server = Server::start([]).await;
    let document = ok(server.get("/openapi.json").await).await;
    for (path, method) in [
        ("/v1/responses", "post"),
        ("/v1/responses/compact", "post"),
        ("/v1/responses/input_tokens", "post"),
        ("/v1/responses/{id}", "get"),
        ("/v1/responses/{id}", "delete"),
        ("/v1/responses/{id}/cancel", "post"),
        ("/v1/responses/{id}/input_items", "get"),
    ] {
        let route = &document["paths"][path][method];
        let json = |status: &str| &route["responses"][status]["content"]["application/json"];
        assert!(json("200")["schema"].is_object(), "{method} {path}: {route}");
        assert_eq!(json("401")["schema"]["$ref"], "#/components/schemas/Problem");
    }
    let asked = &document["components"]["schemas"]["CreateResponse"]["properties"];
    assert_eq!(asked["max_output_tokens"]["minimum"], 1);
}
