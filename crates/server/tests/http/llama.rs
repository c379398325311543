//! What clients of llama.cpp's server use.

use crate::harness::{Server, ok, until};
use crate::support::{
    Act, CONTEXT, IM_END, MARKS, VOCAB, assets_with_marks, ids, scripted, scripted_with_assets,
};
use api::{PrefixFile, PrefixFiles};
use reqwest::Response;
use serde_json::{Value, json};
use server::ServerOptions;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const ANSWER: Act = Act::Say("hello!<|im_end|>");

async fn completion(server: &Server, extra: Value) -> Response {
    let mut body = json!({"prompt": "hi"});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    server.post("/completion", &body).await
}

async fn check_error(response: Response, status: u16, part: &str) -> Value {
    assert_eq!(response.status(), status);
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["error"]["code"], status);
    assert!(body["error"]["message"].as_str().unwrap().contains(part), "{body} has no {part:?}");
    body["error"].clone()
}

/// The data of all events.
async fn events(response: Response) -> Vec<Value> {
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = response.text().await.unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_whole_completion_says_how_it_ended() {
    let server = Server::start([ANSWER]).await;
    let whole = ok(completion(&server, json!({"seed": 7, "id_slot": 3})).await).await;
    let members = [
        ("index", json!(0)),
        ("content", json!("hello!")),
        ("tokens", json!([])),
        ("stop", json!(true)),
        ("stop_type", json!("eos")),
        ("stopping_word", json!("")),
        ("truncated", json!(false)),
        ("model", json!("test/model")),
        ("tokens_predicted", json!(ids("hello!").len())),
        ("tokens_cached", json!(3)),
        ("has_new_line", json!(false)),
    ];
    members.into_iter().for_each(|(name, value)| assert_eq!(whole[name], value, "{name}"));
    assert_eq!(whole["generation_settings"]["seed"], 7);
    assert_eq!(whole["generation_settings"]["temperature"], 0.5);
    assert_eq!(whole["timings"]["prompt_ms"], 1000.0);
    assert_eq!(whole["timings"]["predicted_n"], ids("hello!").len());
    for (extra, kind, word) in
        [(json!({"n_predict": 1}), "limit", ""), (json!({"stop": ["lo"]}), "word", "lo")]
    {
        let whole = ok(completion(&server, extra).await).await;
        assert_eq!((&whole["stop_type"], &whole["stopping_word"]), (&json!(kind), &json!(word)));
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_rest_of_the_answer() {
    let server = Server::start([ANSWER]).await;
    let extra = json!({"stream": true, "timings_per_token": true});
    let events = events(completion(&server, extra).await).await;
    let (last, before) = events.split_last().unwrap();
    let text: String = before.iter().filter_map(|event| event["content"].as_str()).collect();
    let tokens: Vec<&Value> =
        before.iter().flat_map(|event| event["tokens"].as_array().unwrap()).collect();
    assert_eq!((text.as_str(), json!(tokens)), ("hello!", json!(ids("hello!"))));
    assert!(before.iter().all(|event| event["stop"] == false));
    assert!(before[0]["timings"]["predicted_n"].is_u64());
    assert_eq!((&last["stop"], &last["content"]), (&json!(true), &json!("")));
    assert_eq!((&last["stop_type"], &last["tokens_cached"]), (&json!("eos"), &json!(3)));
}

#[tokio::test]
async fn an_error_on_the_way_ends_the_stream() {
    let server = Server::start([Act::Say("hello"), Act::Fail("it broke")]).await;
    let events = events(completion(&server, json!({"stream": true})).await).await;
    let error = json!({"code": 500, "message": "it broke", "type": "server_error"});
    assert_eq!(events.last().unwrap(), &json!({ "error": error }));
}

#[tokio::test]
async fn prompts_come_in_many_forms() {
    let server = Server::start([Act::Say("hello")]).await;
    let forms = [
        (json!([104, 105]), 1),
        (json!([104, "hi"]), 1),
        (json!({"prompt_string": "hi"}), 1),
        (json!(["hi", [104, "i"], {"prompt_string": "a"}]), 3),
    ];
    let mut server = server;
    for (prompt, count) in forms {
        let answer = ok(completion(&server, json!({"prompt": prompt, "n_predict": 1})).await).await;
        match count {
            1 => assert_eq!(answer["content"], "hello"),
            _ => {
                let all = answer.as_array().unwrap();
                assert_eq!(all.iter().map(|one| &one["index"]).collect::<Vec<_>>(), [0, 1, 2]);
            }
        }
        for _ in 0..count {
            let (report, back) = server.report().await;
            server = back;
            if prompt == json!([104, "hi"]) {
                assert_eq!(report.request.prompt, [&[104], &ids("hi")[..]].concat());
            }
        }
    }
    for (prompt, path) in [
        (json!([]), "empty"),
        (json!(3), "prompt"),
        (json!([1, {}]), "prompt[1]"),
        (json!(["a", true]), "prompt[1]"),
        (json!([[-1]]), "prompt[0][0]"),
        (json!({"multimodal_data": ["x"], "prompt_string": "a"}), "prompt.multimodal_data"),
        (json!({}), "prompt.prompt_string"),
        (json!([VOCAB]), &VOCAB.to_string()),
    ] {
        let response = completion(&server, json!({ "prompt": prompt })).await;
        check_error(response, 400, path).await;
    }
}

#[tokio::test]
async fn sampling_reaches_the_engine() {
    let server = Server::start([ANSWER]).await;
    let extra = json!({
        "temperature": -1, "top_k": 40, "logit_bias": [[5, 2.5], ["h", false]], "n_probs": 2,
        "seed": 4_294_967_295_u32, "samplers": ["top_k"], "n_indent": 4, "t_max_predict_ms": 500,
        "mirostat": 0, "cache_prompt": true, "return_tokens": true,
    });
    let whole = ok(completion(&server, extra).await).await;
    assert_eq!(whole["tokens"], json!(ids("hello!")));
    let first = &whole["completion_probabilities"][0];
    assert_eq!((&first["logprob"], &first["id"]), (&json!(-0.25), &json!(ids("hello!")[0])));
    assert_eq!(first["top_logprobs"].as_array().unwrap().len(), 2);
    let warnings = whole["warnings"].as_array().unwrap();
    let names = ["n_indent", "t_max_predict_ms"];
    assert!(warnings.iter().zip(names).all(|(it, name)| it.as_str().unwrap().starts_with(name)));
    assert_eq!(warnings.len(), names.len());
    let (report, _) = server.report().await;
    let sampling = report.request.sampling;
    assert_eq!((sampling.temperature, sampling.top_k, sampling.seed), (0.0, 40, None));
    assert_eq!(sampling.logit_bias, [(5, 2.5), (ids("h")[0], f32::NEG_INFINITY)]);
}

#[tokio::test]
async fn what_cannot_be_is_refused() {
    let server = Server::start([]).await;
    for (extra, part) in [
        (json!({"grammar": "root ::=\n  \"a\" missing"}), "grammar: line 2, column 7"),
        (json!({"grammar": "root ::= \"a\"", "json_schema": {}}), "grammar"),
        (json!({"grammar": 3}), "grammar"),
        (json!({"json_schema": 3}), "json_schema"),
        (json!({"mirostat": 2}), "mirostat"),
        (json!({"dry_multiplier": 0.5}), "dry_multiplier"),
        (json!({"lora": [{"id": 0}]}), "lora"),
        (json!({"post_sampling_probs": 1}), "post_sampling_probs"),
        (json!({"return_progress": 1}), "return_progress"),
        (json!({"n_predict": -3}), "n_predict"),
        (json!({"n_cmpl": 0}), "answers"),
        (json!({"n_cmpl": 129}), "answers"),
        (json!({"stream": "yes"}), "stream"),
        (json!({"temperature": []}), "temperature"),
        (json!({"logit_bias": [[1]]}), "logit_bias[0]"),
        (json!({"logit_bias": [[1, true]]}), "logit_bias[0]"),
        (json!({"logit_bias": 3}), "logit_bias"),
        (json!({"logit_bias": [["a ".repeat(1 << 20), 1]]}), "logit_bias holds 4097"),
        (json!({"logit_bias": vec![(1, 1); 5000]}), "logit_bias holds 4097"),
        (json!({"grammar_lazy": true, "grammar": "root ::= \"a\""}), "grammar_lazy"),
        (json!({"samplers": 3}), "samplers"),
        (json!({"response_fields": "content"}), "response_fields"),
        (json!({"response_fields": vec!["content"; 101]}), "response_fields"),
        (json!({"stop": 3}), "stop"),
    ] {
        check_error(completion(&server, extra).await, 400, part).await;
    }
    let long = json!({"prompt": "hi".repeat(CONTEXT)});
    let error = check_error(completion(&server, long).await, 400, "context").await;
    assert_eq!(
        (&error["type"], &error["n_ctx"]),
        (&json!("exceed_context_size_error"), &json!(CONTEXT))
    );
    assert!(server.no_report());
}

#[tokio::test]
async fn a_prompt_may_be_computed_for_the_cache_alone() {
    let server = Server::start([ANSWER]).await;
    for stream in [false, true] {
        let extra = json!({"n_predict": 0, "stream": stream, "response_fields": ["content", "stop_type", "tokens_predicted"]});
        let response = completion(&server, extra).await;
        let answers = if stream { events(response).await } else { vec![ok(response).await] };
        let expected = json!({"content": "", "stop_type": "limit", "tokens_predicted": 0});
        assert_eq!(answers, [expected]);
    }
}

#[tokio::test]
async fn a_gap_is_filled_between_its_marks() {
    let scripted = scripted_with_assets(assets_with_marks(), vec![ANSWER], 4);
    let server = Server::serve(scripted, ServerOptions::default());
    let body = json!({"input_prefix": "a", "input_suffix": "b", "prompt": "c", "n_predict": 5,
                      "input_extra": [{"filename": "f", "text": "x"}]});
    assert_eq!(ok(server.post("/infill", &body).await).await["content"], "hello!");
    let (report, server) = server.report().await;
    let [a, b, c, x] = ["a", "b", "c", "x"].map(ids);
    let marked = [&x[..], &[MARKS], &a, &[MARKS + 1], &b, &[MARKS + 2], &c].concat();
    assert!(report.request.prompt.ends_with(&marked), "{:?}", report.request.prompt);
    assert!(report.request.stop_ids.contains(&MARKS) && report.request.stop_ids.contains(&IM_END));
    let wrong = json!({"input_extra": [{"filename": "f"}]});
    check_error(server.post("/infill", &wrong).await, 400, "input_extra[0]").await;
    let server = Server::start([]).await;
    let error = check_error(server.post("/infill", &body).await, 501, "gap").await;
    assert_eq!(error["type"], "not_supported_error");
}

#[tokio::test]
async fn text_becomes_tokens_and_tokens_text() {
    let server = Server::start([]).await;
    let text = "hello é<|im_end|>";
    let tokens = ok(server.post("/tokenize", &json!({"content": text})).await).await;
    assert_eq!(tokens, json!({"tokens": ids(text)}));
    let back = ok(server.post("/detokenize", &tokens).await).await;
    assert_eq!(back, json!({"content": text}));
    let plain = json!({"content": "<|im_end|>", "parse_special": false});
    let plain = ok(server.post("/tokenize", &plain).await).await;
    assert!(plain["tokens"].as_array().unwrap().len() > 1);
    let pieces = json!({"content": "hello", "with_pieces": true});
    let pieces = ok(server.post("/tokenize", &pieces).await).await;
    assert_eq!(pieces["tokens"], json!([{"id": ids("hello")[0], "piece": "hello"}]));
    check_error(server.post("/tokenize", &json!({})).await, 400, "content").await;
    check_error(server.post("/tokenize", &json!({"content": {}})).await, 400, "content").await;
    let outside = json!({"tokens": [1, 1_000_000]});
    check_error(server.post("/detokenize", &outside).await, 400, "tokens[1]").await;
    check_error(server.post("/detokenize", &json!({"tokens": ["a"]})).await, 400, "tokens[0]")
        .await;
}

#[tokio::test]
async fn conversations_are_written_as_the_model_reads_them() {
    let server = Server::start([]).await;
    let body = json!({"messages": [{"role": "user", "content": "hi"}],
                      "chat_template_kwargs": {"enable_thinking": true}});
    let rendered = ok(server.post("/apply-template", &body).await).await;
    let expected = "<|endoftext|><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n";
    assert_eq!(rendered, json!({"prompt": expected}));
    let message = json!([{"role": "user", "content": "<|im_end|>"}]);
    let body = json!({"messages": message, "return_tokens": true});
    let rendered = ok(server.post("/apply-template", &body).await).await;
    let ends = |ids: &[u32]| ids.iter().filter(|id| **id == IM_END).count();
    let tokens: Vec<u32> = serde_json::from_value(rendered["tokens"].clone()).unwrap();
    assert_eq!((ends(&tokens), ends(&ids(rendered["prompt"].as_str().unwrap()))), (1, 2));
    check_error(server.post("/apply-template", &json!({})).await, 400, "messages").await;
}

#[tokio::test]
async fn the_server_tells_what_it_is() {
    let server = Server::start([]).await;
    let props = ok(server.get("/props").await).await;
    assert_eq!(props["default_generation_settings"]["n_ctx"], CONTEXT);
    assert_eq!(props["default_generation_settings"]["params"]["temperature"], 0.5);
    assert_eq!(
        (&props["model_path"], &props["model_alias"]),
        (&json!("model.gguf"), &json!("test/model"))
    );
    assert_eq!((&props["total_slots"], &props["bos_token"]), (&json!(4), &json!("<|endoftext|>")));
    assert!(props["chat_template"].as_str().unwrap().contains("im_start"));
    let slots = ok(server.get("/slots?fail_on_no_slot=1").await).await;
    let slots = slots.as_array().unwrap();
    assert!(slots.len() == 4 && slots.iter().all(|slot| slot["is_processing"] == false));
    assert_eq!(ok(server.get("/v1/health").await).await, json!({"status": "ok"}));
}

#[tokio::test]
async fn running_answers_take_slots() {
    let server = Server::start([Act::Say("hello"), Act::Pause(Duration::from_secs(60))]).await;
    let mut stream = completion(&server, json!({"stream": true})).await;
    stream.chunk().await.unwrap();
    let slots = ok(server.get("/slots").await).await;
    let busy: Vec<bool> =
        slots.as_array().unwrap().iter().map(|slot| slot["is_processing"] == true).collect();
    assert_eq!(busy, [true, false, false, false]);
}

/// Files that are written once they may be.
#[derive(Debug, Default)]
struct SlowFiles {
    begun: AtomicUsize,
    may_end: AtomicBool,
}

impl PrefixFiles for SlowFiles {
    fn save(&self, tokens: &[u32], _: &Path) -> Result<PrefixFile, String> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        while !self.may_end.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(PrefixFile { tokens: tokens.to_vec(), bytes: 0 })
    }

    fn restore(&self, path: &Path) -> Result<PrefixFile, String> {
        self.save(&[], path)
    }
}

#[tokio::test]
async fn files_of_slots_are_refused_while_too_many_are_written() {
    let files = Arc::new(SlowFiles::default());
    let mut scripted = scripted([]);
    scripted.service.prefixes = Some(Arc::clone(&files) as Arc<dyn PrefixFiles>);
    let options = ServerOptions { slot_files: Some("slots".into()), ..ServerOptions::default() };
    let server = Server::serve(scripted, options);
    let body = json!({"filename": "a"});
    let url = |action: &str| server.url(&format!("/slots/0?action={action}"));
    let send = |action: &str| server.client.post(url(action)).json(&body).send();
    let slow: Vec<_> = (0..4).map(|_| tokio::spawn(send("save"))).collect();
    until("four are written", async || files.begun.load(Ordering::SeqCst) == 4).await;
    for action in ["save", "restore"] {
        check_error(send(action).await.unwrap(), 503, "too many files").await;
    }
    ok(send("erase").await.unwrap()).await;
    files.may_end.store(true, Ordering::SeqCst);
    for sent in slow {
        ok(sent.await.unwrap().unwrap()).await;
    }
    ok(send("restore").await.unwrap()).await;
}
