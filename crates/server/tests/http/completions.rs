//! `POST /v1/completions`: the shapes of answers and streams.

use crate::harness::{Server, error, events, ok, stable};
use crate::support::{Act, BOS, MARKS, assets_with_marks, ids, scripted_with_assets};
use serde_json::{Value, json};
use server::ServerOptions;

const PATH: &str = "/v1/completions";

#[tokio::test]
async fn whole_answer_has_openai_shape() {
    let server = Server::start([Act::Say(" world")]).await;
    let answer = ok(server.post(PATH, &json!({"prompt": "hello", "max_tokens": 3})).await).await;
    let expected = json!({
        "object": "text_completion",
        "choices": [{"text": " wo", "index": 0, "logprobs": null, "finish_reason": "length"}],
        "usage": {
            "prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        },
    });
    assert_eq!(stable(answer, "cmpl-"), expected);
    let (report, _server) = server.report().await;
    assert_eq!(report.request.prompt, [vec![BOS], ids("hello")].concat());
}

#[tokio::test]
async fn tags_of_reasoning_are_text() {
    let server = Server::start([Act::Say("<think>a</think>b")]).await;
    let answer = ok(server.post(PATH, &json!({"prompt": "x"})).await).await;
    assert_eq!(answer["choices"][0]["text"], "<think>a</think>b");
}

#[tokio::test]
async fn every_prompt_has_its_choices_in_order() {
    let server = Server::start([Act::Say("!")]).await;
    let body = json!({"prompt": ["a", "b"], "n": 2, "echo": true});
    let answer = ok(server.post(PATH, &body).await).await;
    let texts: Vec<&str> =
        answer["choices"].as_array().unwrap().iter().map(|c| c["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["a!", "a!", "b!", "b!"]);
    assert_eq!(answer["usage"]["prompt_tokens"], 4);
    assert_eq!(answer["usage"]["completion_tokens"], 4);
}

#[tokio::test]
async fn ids_are_taken_as_they_are_and_echoed_as_text() {
    let server = Server::start([Act::Say("!")]).await;
    let body = json!({"prompt": [ids("hello"), ids("a")], "echo": true});
    let answer = ok(server.post(PATH, &body).await).await;
    assert_eq!(answer["choices"][0]["text"], "hello!");
    assert_eq!(answer["choices"][1]["text"], "a!");
    let (report, _server) = server.report().await;
    assert_eq!(report.request.prompt, ids("hello"));
}

#[tokio::test]
async fn logprobs_are_parallel_lists() {
    let server = Server::start([Act::Say("né")]).await;
    let body = json!({"prompt": "x", "logprobs": 1});
    let answer = ok(server.post(PATH, &body).await).await;
    let expected = json!({
        "tokens": ["n", "\u{fffd}", "\u{fffd}"],
        "token_logprobs": [-0.25, -0.25, -0.25],
        "top_logprobs": [{"n": -0.25}, {"\u{fffd}": -0.25}, {"\u{fffd}": -0.25}],
        "text_offset": [0, 1, 2],
    });
    assert_eq!(answer["choices"][0]["logprobs"], expected);
}

#[tokio::test]
async fn ids_of_tokens_are_returned_and_name_them() {
    let server = Server::start([Act::Say("ab")]).await;
    let body = json!({
        "prompt": "x", "echo": true, "logprobs": 0, "return_token_ids": true,
        "return_tokens_as_token_ids": true,
    });
    let answer = ok(server.post(PATH, &body).await).await;
    let (choice, said) = (&answer["choices"][0], ids("ab"));
    assert_eq!(choice["token_ids"], json!(said));
    let named = [vec![BOS], ids("x"), said.clone()].concat();
    let named: Vec<String> = named.iter().map(|id| format!("token_id:{id}")).collect();
    assert_eq!(choice["logprobs"]["tokens"], json!(named));

    let server = Server::start([Act::Say("ab")]).await;
    let body = json!({"prompt": "x", "stream": true, "return_token_ids": true});
    let chunks = events(server.post(PATH, &body).await).await;
    let came: Vec<u64> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["token_ids"].as_array())
        .flatten()
        .filter_map(Value::as_u64)
        .collect();
    assert_eq!(came, said.into_iter().map(u64::from).collect::<Vec<_>>());
}

#[tokio::test]
async fn stream_is_text_then_reason_then_usage() {
    let server = Server::start([Act::Say("ab")]).await;
    let body = json!({
        "prompt": "p", "stream": true, "echo": true, "stream_options": {"include_usage": true},
    });
    let events = events(server.post(PATH, &body).await).await;
    let told: Vec<(Value, Value)> = events
        .iter()
        .map(|event| &event["choices"][0])
        .map(|choice| (choice["text"].clone(), choice["finish_reason"].clone()))
        .collect();
    assert_eq!(
        told,
        [
            (json!("pa"), Value::Null),
            (json!("b"), Value::Null),
            (json!(""), json!("stop")),
            (Value::Null, Value::Null),
        ]
    );
    assert_eq!(events[3]["usage"]["total_tokens"], 4);
}

#[tokio::test]
async fn streamed_offsets_go_on_from_chunk_to_chunk() {
    let server = Server::start([Act::Say("abc")]).await;
    let body = json!({"prompt": "p", "stream": true, "logprobs": 0});
    let events = events(server.post(PATH, &body).await).await;
    let offsets: Vec<&Value> = events
        .iter()
        .map(|event| &event["choices"][0]["logprobs"]["text_offset"][0])
        .filter(|offset| !offset.is_null())
        .collect();
    assert_eq!(offsets, [0, 1, 2]);
}

#[tokio::test]
async fn a_suffix_makes_a_gap() {
    let scripted = scripted_with_assets(assets_with_marks(), vec![Act::Say("hello")], 4);
    let server = Server::serve(scripted, ServerOptions::default());
    let body = json!({"prompt": "hi", "suffix": "lo"});
    let answer = ok(server.post("/v1/completions", &body).await).await;
    assert_eq!(answer["choices"][0]["text"], "hello");
    let (report, server) = server.report().await;
    let marked = [&[MARKS], &ids("hi")[..], &[MARKS + 1], &ids("lo"), &[MARKS + 2]].concat();
    assert!(report.request.prompt.ends_with(&marked), "{:?}", report.request.prompt);
    let of_ids = json!({"prompt": [1], "suffix": "lo"});
    let refused = error(server.post("/v1/completions", &of_ids).await, 400).await;
    assert_eq!(refused["param"], "suffix");
    let server = Server::start([]).await;
    let refused = error(server.post("/v1/completions", &body).await, 400).await;
    assert_eq!(refused["param"], "suffix");
}

/// The lists of an echoed answer to the ids of "hi", the token behind BOS being told of first.
fn echoed(answer: &str, offsets: &[usize]) -> Value {
    let prompt = ["<|endoftext|>", "h", "i"];
    let tokens: Vec<String> = answer.chars().map(String::from).collect();
    let tokens: Vec<&str> = prompt.into_iter().chain(tokens.iter().map(String::as_str)).collect();
    let told = |at: usize, value: Value| if at == 0 { Value::Null } else { value };
    let logprobs = tokens.iter().enumerate().map(|(at, _)| told(at, json!(-0.25)));
    let tops = tokens.iter().enumerate().map(|(at, token)| told(at, json!({*token: -0.25})));
    json!({
        "tokens": tokens,
        "token_logprobs": logprobs.collect::<Vec<_>>(),
        "top_logprobs": tops.collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}

#[tokio::test]
async fn echoed_prompts_have_log_probabilities() {
    let server = Server::start([Act::Say("no")]).await;
    let mut body = json!({"prompt": "hi", "echo": true, "logprobs": 0});
    let answer = ok(server.post(PATH, &body).await).await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["text"], "hino");
    assert_eq!(choice["logprobs"], echoed("no", &[0, 0, 1, 2, 3]));
    body["stream"] = true.into();
    let events = events(server.post(PATH, &body).await).await;
    let first = &events[0]["choices"][0];
    assert_eq!((&first["text"], &first["logprobs"]), (&json!("hin"), &echoed("n", &[0, 0, 1, 2])));
    assert_eq!(events[1]["choices"][0]["logprobs"]["text_offset"], json!([3]));
}

#[tokio::test]
async fn prompts_may_be_echoed_without_an_answer() {
    let server = Server::start([Act::Say("no")]).await;
    let mut body = json!({"prompt": "hi", "echo": true, "logprobs": 0, "max_tokens": 0});
    for stream in [false, true] {
        body["stream"] = stream.into();
        let response = server.post(PATH, &body).await;
        let answer = if stream { events(response).await.remove(0) } else { ok(response).await };
        let choice = &answer["choices"][0];
        assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!("hi"), &json!("length")));
        assert_eq!(choice["logprobs"], echoed("", &[0, 0, 1]));
    }
    let bare = json!({"prompt": "hi", "echo": true, "max_tokens": 0});
    assert_eq!(ok(server.post(PATH, &bare).await).await["choices"][0]["text"], "hi");
    let unasked = json!({"prompt": "hi", "max_tokens": 0});
    assert_eq!(server.post(PATH, &unasked).await.status(), 400);
}

#[tokio::test]
async fn the_best_of_several_are_echoed_too() {
    let server = Server::start([Act::Say("no")]).await;
    let body = json!({"prompt": "hi", "echo": true, "logprobs": 0, "best_of": 2});
    let answer = ok(server.post(PATH, &body).await).await;
    assert_eq!(answer["choices"][0]["logprobs"], echoed("no", &[0, 0, 1, 2, 3]));
}
