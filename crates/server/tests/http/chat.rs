//! `POST /v1/chat/completions`: the shapes of answers and streams.

use crate::harness::{Server, chat_body, error, events, ok, stable};
use crate::support::{Act, ids};
use serde_json::{Value, json};

/// Tokens of the prompt that `chat_body` makes.
fn prompt_tokens() -> usize {
    ids("<|endoftext|><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n").len()
}

fn usage(completion: usize, reasoning: usize) -> Value {
    json!({
        "prompt_tokens": prompt_tokens(),
        "completion_tokens": completion,
        "total_tokens": prompt_tokens() + completion,
        "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": prompt_tokens() - 3},
        "completion_tokens_details": {
            "reasoning_tokens": reasoning,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    })
}

#[tokio::test]
async fn whole_answer_has_openai_shape() {
    let server = Server::start([Act::Say("hello!<|im_end|>")]).await;
    let expected = json!({
        "object": "chat.completion",
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": "hello!", "refusal": null},
            "logprobs": null,
            "finish_reason": "stop",
        }],
        "usage": usage(2, 0),
    });
    assert_eq!(stable(server.chat(json!({})).await, "chatcmpl-"), expected);
}

fn chunk(delta: Value, finish_reason: Value) -> Value {
    json!({
        "object": "chat.completion.chunk",
        "choices": [
            {"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason},
        ],
    })
}

#[tokio::test]
async fn stream_is_role_then_text_then_reason() {
    let server = Server::start([Act::Say("<think>why</think>hello<|im_end|>")]).await;
    let events = server.chat_events(json!({})).await;
    let id = events[0]["id"].clone();
    assert!(events.iter().all(|event| event["id"] == id));
    let stable: Vec<Value> = events.into_iter().map(|event| stable(event, "chatcmpl-")).collect();
    let expected = [
        chunk(json!({"role": "assistant", "content": ""}), Value::Null),
        chunk(json!({"reasoning_content": "w"}), Value::Null),
        chunk(json!({"reasoning_content": "h"}), Value::Null),
        chunk(json!({"reasoning_content": "y"}), Value::Null),
        chunk(json!({"content": "hello"}), Value::Null),
        chunk(json!({}), json!("stop")),
    ];
    assert_eq!(stable, expected);
}

#[tokio::test]
async fn usage_ends_a_stream_that_asked_for_it() {
    let server = Server::start([Act::Say("hello")]).await;
    let mut events = server.chat_events(json!({"stream_options": {"include_usage": true}})).await;
    let last = stable(events.pop().unwrap(), "chatcmpl-");
    let expected = json!({"object": "chat.completion.chunk", "choices": [], "usage": usage(1, 0)});
    assert_eq!(last, expected);
    assert!(events.iter().all(|event| event["usage"].is_null() && event.get("usage").is_some()));
}

#[tokio::test]
async fn usage_so_far_is_in_every_chunk_that_asked_for_it() {
    let server = Server::start([Act::Prefill(9), Act::Say("<think>\nw\n</think>\n\nhello")]).await;
    let stream = json!({"include_usage": true, "continuous_usage_stats": true});
    let mut events = server.chat_events(json!({ "stream_options": stream })).await;
    let whole = events.pop().unwrap()["usage"].clone();
    let counts = events.iter().map(|event| event["usage"]["completion_tokens"].as_u64().unwrap());
    let counts: Vec<u64> = counts.collect();
    let total = whole["completion_tokens"].as_u64().unwrap();
    assert!(counts.is_sorted() && counts[0] < total && counts.len() > 3, "{counts:?}");
    assert_eq!(events.last().unwrap()["usage"], whole);
    assert!(events.iter().all(|event| {
        let usage = &event["usage"];
        let sum =
            usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap();
        usage["prompt_tokens"] == whole["prompt_tokens"] && usage["total_tokens"] == sum
    }));
    assert!(events.iter().all(|event| event["choices"][0]["logprobs"].is_null()));
    let alone = json!({"continuous_usage_stats": true});
    let events = server.chat_events(json!({ "stream_options": alone })).await;
    assert!(events.iter().all(|event| event.get("usage").is_none()));
}

#[tokio::test]
async fn stop_strings_are_part_of_the_answer_where_that_is_asked_for() {
    let server = Server::start([Act::Say("one END two")]).await;
    let ask = json!({"stop": ["END"], "include_stop_str_in_output": true});
    let choice = server.chat(ask).await["choices"][0].clone();
    assert_eq!(
        (&choice["message"]["content"], &choice["finish_reason"]),
        (&json!("one END"), &json!("stop"))
    );
    let choice = server.chat(json!({"stop": ["END"]})).await["choices"][0].clone();
    assert_eq!(choice["message"]["content"], "one ");
}

#[tokio::test]
async fn reasoning_is_apart_from_content() {
    let server = Server::start([Act::Say("<think>\nwhy\n</think>\n\nyes")]).await;
    let answer = server.chat(json!({})).await;
    let message = &answer["choices"][0]["message"];
    assert_eq!(
        (&message["reasoning_content"], &message["content"]),
        (&json!("why"), &json!("yes"))
    );
    let details = &answer["usage"]["completion_tokens_details"];
    assert!(details["reasoning_tokens"].as_u64().unwrap() >= 3, "{details}");
    let raw = server.chat(json!({"reasoning_format": "none"})).await;
    assert_eq!(raw["choices"][0]["message"]["content"], "<think>\nwhy\n</think>\n\nyes");
    for hidden in [
        json!({"include_reasoning": false}),
        json!({"reasoning": {"exclude": true}}),
        json!({"reasoning_format": "hidden"}),
    ] {
        let message = server.chat(hidden.clone()).await["choices"][0]["message"].clone();
        assert_eq!(message["content"], "yes", "{hidden}");
        assert!(message.get("reasoning_content").is_none(), "{hidden}");
        let mut body = chat_body(hidden.clone());
        body["stream"] = true.into();
        let stream = events(server.post("/v1/chat/completions", &body).await).await;
        let told =
            |chunk: &Value| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned);
        assert_eq!(stream.iter().filter_map(told).collect::<String>(), "yes", "{hidden}");
        assert!(!json!(stream).to_string().contains("reasoning_content"), "{hidden}");
    }
}

#[tokio::test]
async fn members_that_would_change_the_answer_are_refused_and_others_named() {
    let server = Server::start([Act::Say("yes")]).await;
    for (name, value) in [
        ("chat_template", json!("x")),
        ("documents", json!([{"text": "x"}])),
        ("echo", json!(true)),
        ("best_of", json!(2)),
        ("reasoning_format", json!("zzz")),
    ] {
        let body = chat_body(json!({ name: value }));
        let refused = error(server.post("/v1/chat/completions", &body).await, 400).await;
        assert_eq!(refused["param"], name, "{refused}");
    }
    let off = json!({"chat_template": null, "documents": [], "echo": false, "best_of": 1});
    assert!(server.chat(off).await.get("warnings").is_none());
    let unused = json!({"kv_transfer_params": {}, "vllm_xargs": {}});
    assert_eq!(server.chat(unused.clone()).await["warnings"].as_array().unwrap().len(), 2);
    let mut body = unused;
    body["prompt"] = "a".into();
    let answer = ok(server.post("/v1/completions", &body).await).await;
    assert_eq!(answer["warnings"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn logprobs_tell_every_token() {
    let server = Server::start([Act::Say("ab")]).await;
    let ask = json!({"logprobs": true, "top_logprobs": 2});
    let answer = server.chat(ask.clone()).await;
    let list = answer["choices"][0]["logprobs"]["content"].clone();
    let token = |text: &str, logprob: f64| json!({"token": text, "logprob": logprob, "bytes": text.as_bytes()});
    let with_top = |text, next| {
        let mut entry = token(text, -0.25);
        entry["top_logprobs"] = json!([token(text, -0.25), token(next, -1.25)]);
        entry
    };
    assert_eq!(list, json!([with_top("a", "b"), with_top("b", "c")]));
    let streamed: Vec<Value> = server
        .chat_events(ask)
        .await
        .iter()
        .filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array())
        .flatten()
        .cloned()
        .collect();
    assert_eq!(Value::from(streamed), list);
}

#[tokio::test]
async fn stop_strings_across_tokens_end_the_answer_and_the_generation() {
    let server = Server::start([Act::Say("one END"), Act::Forever("x")]).await;
    let answer = server.chat(json!({"stop": ["STOP", "END"]})).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "one ");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let (report, _server) = server.report().await;
    assert!(report.cancelled);
}

#[tokio::test]
async fn several_choices_have_seeds_of_their_own_and_one_prompt() {
    let server = Server::start([Act::Say("ab")]).await;
    let answer = server.chat(json!({"n": 2, "seed": 7, "max_tokens": 2})).await;
    let choices = answer["choices"].as_array().unwrap();
    for (index, choice) in choices.iter().enumerate() {
        assert_eq!(choice["index"], index);
        assert_eq!(choice["message"]["content"], "ab");
        assert_eq!(choice["finish_reason"], "length");
    }
    assert_eq!(choices.len(), 2);
    assert_eq!(answer["usage"], usage(4, 0));
    let (first, server) = server.report().await;
    let (second, _server) = server.report().await;
    let seeds = [first.request.sampling.seed, second.request.sampling.seed];
    assert_eq!(seeds, [Some(7), Some(8)]);
}

#[tokio::test]
async fn streamed_choices_each_open_with_their_role() {
    let server = Server::start([Act::Say("a")]).await;
    let events = server.chat_events(json!({"n": 2})).await;
    for index in 0..2 {
        let deltas: Vec<&Value> = events
            .iter()
            .map(|event| &event["choices"][0])
            .filter(|choice| choice["index"] == index)
            .map(|choice| &choice["delta"])
            .collect();
        assert_eq!(
            deltas,
            [&json!({"role": "assistant", "content": ""}), &json!({"content": "a"}), &json!({}),]
        );
    }
}

#[tokio::test]
async fn conversations_with_tools_reach_the_template() {
    let server = Server::start([Act::Say("x")]).await;
    let body = chat_body(json!({
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "be brief"}]},
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function",
                 "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "chat_template_kwargs": {"enable_thinking": false},
        "never_heard_of": [1, 2],
    }));
    assert_eq!(server.post("/v1/chat/completions", &body).await.status(), 200);
    let (report, _server) = server.report().await;
    let expected = "<|endoftext|><|im_start|>tools\n\
        [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]<|im_end|>\n\
        <|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nweather?<|im_end|>\n\
        <|im_start|>assistant\n<tool_call>f{\"x\": 1}</tool_call><|im_end|>\n\
        <|im_start|>tool\nsunny<|im_end|>\n\
        <|im_start|>assistant\n<think>\n\n</think>\n\n";
    assert_eq!(report.request.prompt, ids(expected));
}

/// The counts of a prediction are those of both texts, whatever was drafted.
#[tokio::test]
async fn tokens_of_a_prediction_are_counted() {
    let said = "one two three four five";
    let server = Server::start([Act::Say("one two three four five<|im_end|>")]).await;
    for (expected, accepted) in
        [(said, ids(said).len()), ("one two three six", ids("one two three ").len())]
    {
        let prediction = json!({"type": "content", "content": expected});
        let answer = server.chat(json!({"prediction": prediction})).await;
        let details = &answer["usage"]["completion_tokens_details"];
        let rejected = ids(expected).len() - accepted;
        assert_eq!(details["accepted_prediction_tokens"], accepted, "{details}");
        assert_eq!(details["rejected_prediction_tokens"], rejected, "{details}");
    }
}
