//! What llama-server's own tests and clients send beyond its basic routes.

use crate::harness::{Server, chat_body, error, events, listener, ok};
use crate::support::{Act, CONTEXT, IM_END, Scripted, ids, scripted_with_queue};
use api::SamplingOptions;
use reqwest::Response;
use serde_json::{Value, json};
use server::{Listener, ServedModels, ServerOptions};

const ANSWER: [Act; 3] = [Act::Prefill(5), Act::Prefill(9), Act::Say("hello!<|im_end|>")];

/// The error object of a response in the form of llama.cpp's server.
async fn llama_error(response: Response, status: u16, kind: &str) -> Value {
    assert_eq!(response.status(), status);
    let body: Value = response.json().await.unwrap();
    let error = &body["error"];
    assert_eq!((&error["code"], &error["type"]), (&json!(status), &json!(kind)), "{body}");
    assert!(error["message"].is_string(), "{body}");
    error.clone()
}

/// `answer` without what differs between requests.
fn lasting(mut answer: Value) -> Value {
    for name in ["id", "created", "created_at", "completed_at"] {
        answer.as_object_mut().unwrap().shift_remove(name);
    }
    for item in answer["output"].as_array_mut().into_iter().flatten() {
        item["id"] = Value::Null;
    }
    answer
}

#[tokio::test]
async fn routes_without_the_prefix_are_those_with_it() {
    let server = Server::start(ANSWER).await;
    let chat = chat_body(json!({}));
    let input = json!({"input": "hi"});
    for (path, body) in [
        ("/chat/completions", &chat),
        ("/chat/completions/input_tokens", &chat),
        ("/responses", &input),
        ("/responses/input_tokens", &input),
    ] {
        let short = lasting(ok(server.post(path, body).await).await);
        let long = lasting(ok(server.post(&format!("/v1{path}"), body).await).await);
        assert_eq!(short, long, "{path}");
    }
    for path in ["/models", "/models/test/model", "/models?client_version=1"] {
        let long = ok(server.get(&format!("/v1{path}")).await).await;
        assert_eq!(ok(server.get(path).await).await, long, "{path}");
    }
    let stored = ok(server.post("/responses", &input).await).await;
    let found = format!("/responses/{}", stored["id"].as_str().unwrap());
    assert_eq!(ok(server.get(&found).await).await["id"], stored["id"]);
    let mut streamed = chat.clone();
    streamed["stream"] = true.into();
    let text: String = events(server.post("/chat/completions", &streamed).await)
        .await
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, "hello!");
    assert_eq!(server.get("/modelsx").await.status(), 404);
    assert_eq!(server.get("/chat/completions").await.status(), 405);
}

#[tokio::test]
async fn a_conversation_is_counted_without_an_answer() {
    let server = Server::start([]).await;
    let path = "/v1/chat/completions/input_tokens";
    let found = ok(server.post(path, &chat_body(json!({}))).await).await;
    let usage = ok(server.post("/v1/messages/count_tokens", &chat_body(json!({}))).await).await;
    let expected =
        json!({"object": "response.input_tokens", "input_tokens": usage["input_tokens"]});
    assert_eq!(found, expected);
    let long = chat_body(json!({"messages": [{"role": "user", "content": "hi".repeat(CONTEXT)}]}));
    assert!(ok(server.post(path, &long).await).await["input_tokens"].as_u64() > Some(256));
    error(server.post(path, &json!({"messages": []})).await, 400).await;
    assert!(server.no_report());
}

#[tokio::test]
async fn a_long_prompt_has_llama_servers_type_on_its_routes_and_openais_code_on_theirs() {
    let server = Server::start([]).await;
    let mut long =
        chat_body(json!({"messages": [{"role": "user", "content": "hi".repeat(CONTEXT)}]}));
    for stream in [false, true] {
        long["stream"] = stream.into();
        let response = server.post("/chat/completions", &long).await;
        let short = llama_error(response, 400, "exceed_context_size_error").await;
        let full = error(server.post("/v1/chat/completions", &long).await, 400).await;
        assert_eq!(full["code"], "context_length_exceeded");
        for found in [short, full] {
            assert_eq!(found["n_ctx"], CONTEXT);
            assert!(found["n_prompt_tokens"].as_u64().unwrap() > CONTEXT as u64, "{found}");
        }
    }
}

#[tokio::test]
async fn progress_and_times_come_with_the_chunks_that_ask_for_them() {
    let server = Server::start(ANSWER).await;
    let prompt = "the quick brown fox jumps";
    let bodies = [
        ("/v1/chat/completions", chat_body(json!({}))),
        ("/v1/completions", json!({"prompt": prompt})),
    ];
    for (path, mut body) in bodies {
        body["stream"] = true.into();
        let plain = events(server.post(path, &body).await).await;
        let (last, others) = plain.split_last().unwrap();
        assert!(last["timings"]["predicted_n"].is_u64(), "{path}: {last}");
        assert!(others.iter().all(|one| one.get("timings").is_none()), "{path}");
        assert!(plain.iter().all(|one| one.get("prompt_progress").is_none()), "{path}");
        for name in ["return_progress", "timings_per_token"] {
            body[name] = true.into();
        }
        body["stream_options"] = json!({"include_usage": true});
        let all = events(server.post(path, &body).await).await;
        let progress: Vec<&Value> =
            all.iter().filter_map(|one| one.get("prompt_progress")).collect();
        let total = all.last().unwrap()["usage"]["prompt_tokens"].as_u64().unwrap();
        check_progress(&progress, total);
        let first = &all[0];
        assert_eq!(first["timings"]["prompt_ms"], 0.0, "{path}");
        let last = all.last().unwrap();
        assert_eq!((&last["choices"], &last["timings"]["cache_n"]), (&json!([]), &json!(3)));
        assert_eq!(last["timings"]["predicted_n"], ids("hello!").len());
        let texts = all.iter().filter(|one| one["choices"][0]["finish_reason"].is_null());
        let told = texts.filter(|one| one.get("timings").is_some()).count();
        assert!(told >= progress.len() + ids("hello!").len(), "{path}: {all:?}");
    }
    let body = json!({"prompt": prompt, "stream": true, "return_progress": true,
        "timings_per_token": true});
    let text = server.post("/completion", &body).await.text().await.unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let all: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let progress: Vec<&Value> = all.iter().filter_map(|one| one.get("prompt_progress")).collect();
    check_progress(&progress, all.last().unwrap()["tokens_evaluated"].as_u64().unwrap());
    assert_eq!((&all[0]["content"], &all[0]["stop"]), (&json!(""), &json!(false)));
}

/// The script computes 5, then 9 tokens of the prompt; the cache had 3.
fn check_progress(progress: &[&Value], total: u64) {
    let processed: Vec<u64> =
        progress.iter().map(|one| one["processed"].as_u64().unwrap()).collect();
    assert_eq!(processed, [3, 5, 9, total]);
    assert!(progress.iter().all(|one| one["total"] == total && one["cache"] == 3));
    assert_eq!(progress[0]["time_ms"], 0);
}

#[tokio::test]
async fn whole_answers_tell_their_times() {
    let server = Server::start(ANSWER).await;
    for (path, body) in [
        ("/v1/chat/completions", chat_body(json!({"n": 2}))),
        ("/v1/completions", json!({"prompt": ["hi", "hi"]})),
    ] {
        let answer = ok(server.post(path, &body).await).await;
        let (timings, usage) = (&answer["timings"], &answer["usage"]);
        assert_eq!(timings["predicted_n"], usage["completion_tokens"], "{path}");
        assert_eq!(timings["cache_n"], usage["prompt_tokens_details"]["cached_tokens"], "{path}");
        assert_eq!(timings["predicted_ms"], 4000.0, "{path}");
        assert!(answer.get("prompt_progress").is_none());
    }
}

#[tokio::test]
async fn probabilities_after_sampling_have_names_of_their_own() {
    let server = Server::start(ANSWER).await;
    let body = json!({"prompt": "hi", "n_probs": 2, "post_sampling_probs": true});
    let whole = ok(server.post("/completion", &body).await).await;
    assert_eq!(whole["generation_settings"]["post_sampling_probs"], true);
    for token in whole["completion_probabilities"].as_array().unwrap() {
        let prob = token["prob"].as_f64().unwrap();
        assert!((prob - (-0.25f64).exp()).abs() < 1e-6, "{token}");
        let top = token["top_probs"].as_array().unwrap();
        assert!(top.len() == 2 && top.iter().all(|one| one["prob"].is_f64()));
        assert!(token.get("logprob").is_none() && token.get("top_logprobs").is_none());
    }
    let (report, _) = server.report().await;
    assert!(report.request.sampled_logprobs && report.request.logprobs == Some(2));
}

#[tokio::test]
async fn members_are_chosen_by_their_paths_and_told_under_them() {
    let server = Server::start(ANSWER).await;
    let fields = ["content", "generation_settings/n_predict", "prompt", "timings/cache_n", "no/x"];
    let body = json!({"prompt": "hi", "n_predict": 32, "response_fields": fields});
    let answer = ok(server.post("/completion", &body).await).await;
    let expected = json!({"content": "hello!", "generation_settings/n_predict": 32,
        "prompt": "<|endoftext|>hi", "timings/cache_n": 3});
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn settings_tell_the_biases_of_ignored_ends() {
    let server = Server::start(ANSWER).await;
    let biases = async |extra: Value| {
        let mut body = json!({"prompt": "hi", "n_predict": 2});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let answer = ok(server.post("/completion", &body).await).await;
        answer["generation_settings"]["logit_bias"].clone()
    };
    assert_eq!(biases(json!({"ignore_eos": false})).await, json!([]));
    let ignored = biases(json!({"ignore_eos": true})).await;
    assert!(ignored.as_array().unwrap().contains(&json!({"token": IM_END, "bias": null})));
    let own = biases(json!({"logit_bias": [[5, 2.5], [6, false]]})).await;
    assert_eq!(own, json!([{"token": 5, "bias": 2.5}, {"token": 6, "bias": null}]));
}

#[tokio::test]
async fn texts_to_embed_may_mix_strings_and_tokens() {
    let server = Server::start([]).await;
    let object = json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]});
    let mut server = server;
    for (input, count) in [
        (json!(""), 1),
        (json!([12, 34, 56]), 1),
        (json!([12, 34, "string", 56, 78]), 1),
        (json!(["string1", [12, 34, 56]]), 2),
        (json!([[12, 34, 56], [12, "string", 34, 56]]), 2),
        (json!({"prompt_string": "string"}), 1),
        (object.clone(), 1),
        (json!(["string1", {"prompt_string": "string2"}, object]), 3),
    ] {
        let list = ok(server.post("/v1/embeddings", &json!({"input": input})).await).await;
        assert_eq!(list["data"].as_array().unwrap().len(), count, "{input}");
        for _ in 0..count {
            let (report, back) = server.report().await;
            server = back;
            if input == json!([12, 34, "string", 56, 78]) {
                let middle = ids("string");
                assert_eq!(report.request.prompt, [&[12, 34], &middle[..], &[56, 78]].concat());
            }
        }
        for (path, name) in [("/embeddings", "input"), ("/embedding", "content")] {
            let list = ok(server.post(path, &json!({name: input})).await).await;
            let one = &list.as_array().unwrap()[count - 1];
            assert_eq!(one["index"], count - 1);
            assert_eq!(one["embedding"].as_array().unwrap().len(), 1, "{one}");
            for _ in 0..count {
                server = server.report().await.1;
            }
        }
    }
    for input in [
        json!([]),
        json!({"content": "string"}),
        json!({"content": [{"type": "unknown"}]}),
        json!({"content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}),
        json!([[]]),
        json!([true]),
        json!([9_999_999]),
    ] {
        error(server.post("/v1/embeddings", &json!({"input": input})).await, 400).await;
        let response = server.post("/embedding", &json!({"input": input})).await;
        llama_error(response, 400, "invalid_request_error").await;
    }
    for body in [json!({}), json!({"input": "a", "embd_normalize": 1})] {
        llama_error(server.post("/embedding", &body).await, 400, "invalid_request_error").await;
    }
}

#[tokio::test]
async fn no_model_ranks_documents() {
    let server = Server::start([]).await;
    for path in ["/rerank", "/reranking", "/v1/rerank", "/v1/reranking"] {
        let body = json!({"query": "a", "documents": ["b"]});
        error(server.post(path, &body).await, 501).await;
    }
}

#[tokio::test]
async fn routes_can_be_turned_off() {
    let options =
        ServerOptions { ui: false, slots: false, metrics: false, ..ServerOptions::default() };
    let server = Server::start_with([], 4, options).await;
    for path in ["/slots", "/metrics"] {
        llama_error(server.get(path).await, 501, "not_supported_error").await;
    }
    for path in ["/", "/docs", "/ui/main.js"] {
        assert_eq!(server.get(path).await.status(), 404, "{path}");
    }
    assert_eq!(server.get("/openapi.json").await.status(), 200);
    let server = Server::start([]).await;
    let metrics = server.get("/metrics").await;
    let started = metrics.headers()["process-start-time-unix"].to_str().unwrap();
    assert!(started.parse::<u64>().unwrap() > 1_700_000_000);
    assert_eq!(server.get("/").await.status(), 200);
}

#[tokio::test]
async fn further_names_of_the_model_are_known() {
    let scripted = scripted_with_queue(Vec::new(), 4);
    let aliases = vec!["a".into(), "b/c".into()];
    let models = ServedModels::One { service: scripted.service.clone(), aliases };
    let server = Server::serve_models(models, scripted, ServerOptions::default());
    let list = ok(server.get("/models").await).await;
    assert_eq!(list["data"][0]["aliases"], json!(["a", "b/c"]));
    // The only model answers to any name.
    for name in ["a", "b/c", "test/model", "b"] {
        let path = format!("/v1/models/{name}");
        assert_eq!(ok(server.get(&path).await).await["id"], "test/model");
    }
}

#[tokio::test]
async fn the_servers_sampling_is_the_default_of_requests() {
    let Scripted { service, reports } = scripted_with_queue(ANSWER.to_vec(), 4);
    let defaults = SamplingOptions {
        seed: Some(42),
        top_k: Some(7),
        max_tokens: Some(64),
        ..SamplingOptions::default()
    };
    let service = service.with_defaults(&defaults).unwrap();
    let wrong = SamplingOptions { temperature: Some(-1.0), ..SamplingOptions::default() };
    assert!(service.clone().with_defaults(&wrong).is_err());
    let mut server = Server::serve(Scripted { service, reports }, ServerOptions::default());
    let params =
        ok(server.get("/props").await).await["default_generation_settings"]["params"].clone();
    assert_eq!((&params["seed"], &params["top_k"]), (&json!(42), &json!(7)));
    assert_eq!((&params["n_predict"], &params["temperature"]), (&json!(64), &json!(0.5)));
    for (extra, seed, most) in [
        (json!({}), Some(42), Some(64)),
        (json!({"seed": 3, "max_tokens": 5}), Some(3), Some(5)),
        (json!({"seed": -1, "max_tokens": -1}), None, Some(64)),
    ] {
        server.chat(extra).await;
        let (report, back) = server.report().await;
        server = back;
        assert_eq!((report.request.sampling.seed, report.request.max_tokens), (seed, most));
        assert_eq!(report.request.sampling.top_k, 7);
    }
}

#[tokio::test]
async fn every_port_is_served() {
    let ports = vec![listener(), listener(), listener()];
    let all: Vec<_> = ports.iter().map(|port| port.local_addr().unwrap()).collect();
    let listener = Listener { tcp: ports, ..Listener::default() };
    let server = Server::start_on(listener, ANSWER, 4, ServerOptions::default()).await;
    for address in all.iter().cycle().take(9) {
        let url = format!("http://{address}/health");
        assert_eq!(reqwest::get(url).await.unwrap().status(), 200);
    }
    assert_eq!(server.addr, all[0]);
}
