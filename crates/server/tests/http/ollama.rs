//! Ollama's API: the shapes of answers and streams, and what is refused.

use crate::harness::{Server, ok};
use crate::support::{Act, CONTEXT, IM_END, MARKS, assets_with_marks, ids, scripted_with_assets};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use server::ServerOptions;

const ANSWER: Act = Act::Say("<think>why</think>hello!<|im_end|>");
const PROMPT: &str = "<|endoftext|><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";

fn chat(extra: Value) -> Value {
    with(json!({"model": "any:latest", "messages": [{"role": "user", "content": "hi"}]}), extra)
}

fn generate(extra: Value) -> Value {
    with(json!({"model": "any", "prompt": "hi"}), extra)
}

fn with(mut body: Value, extra: Value) -> Value {
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// The lines of a stream.
async fn lines(response: Response) -> Vec<Value> {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let text = response.text().await.unwrap();
    assert!(text.ends_with('\n'), "{text}");
    text.lines().map(|line| stable(serde_json::from_str(line).unwrap())).collect()
}

/// Without what differs between runs.
fn stable(mut line: Value) -> Value {
    if line.get("error").is_none() {
        let at = line.as_object_mut().unwrap().shift_remove("created_at").unwrap();
        assert!(at.as_str().unwrap().starts_with("20") && at.as_str().unwrap().ends_with('Z'));
    }
    line
}

async fn check_error(response: Response, status: u16, part: &str) {
    assert_eq!(response.status(), status);
    let body: Value = response.json().await.unwrap();
    assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
    assert!(body["error"].as_str().unwrap().contains(part), "{body} has no {part:?}");
}

fn totals(reason: &str, tokens: usize) -> Value {
    json!({
        "done": true, "done_reason": reason,
        "total_duration": 3_500_000_000_u64, "load_duration": 500_000_000,
        "prompt_eval_count": ids(PROMPT).len(), "prompt_eval_duration": 1_000_000_000,
        "eval_count": tokens, "eval_duration": 2_000_000_000,
    })
}

/// Tokens before the one that ends `ANSWER`.
fn answer_ids() -> Vec<u32> {
    ids("<think>why</think>hello!")
}

#[tokio::test]
async fn a_chat_is_lines_of_which_the_last_is_done() {
    let server = Server::start([ANSWER]).await;
    let lines = lines(server.post("/api/chat", &chat(json!({}))).await).await;
    let said = |name: &str| -> String {
        lines.iter().filter_map(|line| line["message"][name].as_str()).collect()
    };
    assert_eq!((said("thinking").as_str(), said("content").as_str()), ("why", "hello!"));
    let (last, before) = lines.split_last().unwrap();
    assert!(before.iter().all(|line| line["done"] == false && line["model"] == "test/model"));
    let message = json!({"role": "assistant", "content": ""});
    let expected = with(
        json!({"model": "test/model", "message": message}),
        totals("stop", answer_ids().len()),
    );
    assert_eq!(*last, expected);
}

#[tokio::test]
async fn a_whole_chat_is_one_object() {
    let server = Server::start([ANSWER]).await;
    let body = chat(json!({"stream": false}));
    let whole = stable(ok(server.post("/api/chat", &body).await).await);
    let message = json!({"role": "assistant", "content": "hello!", "thinking": "why"});
    let expected = with(
        json!({"model": "test/model", "message": message}),
        totals("stop", answer_ids().len()),
    );
    assert_eq!(whole, expected);
}

#[tokio::test]
async fn limits_and_stop_strings_are_told_apart() {
    let server = Server::start([Act::Say("hello!")]).await;
    for (options, reason, text) in
        [(json!({"num_predict": 1}), "length", "hello"), (json!({"stop": "lo"}), "stop", "hel")]
    {
        let body = chat(json!({"stream": false, "options": options}));
        let whole = ok(server.post("/api/chat", &body).await).await;
        assert_eq!(
            (&whole["done_reason"], &whole["message"]["content"]),
            (&json!(reason), &json!(text))
        );
    }
}

#[tokio::test]
async fn generation_goes_on_from_its_context() {
    let server = Server::start([ANSWER]).await;
    let body = generate(json!({"stream": false}));
    let whole = ok(server.post("/api/generate", &body).await).await;
    assert_eq!((&whole["response"], &whole["thinking"]), (&json!("hello!"), &json!("why")));
    assert!(whole.get("logprobs").is_none(), "{whole}");
    let context = [ids(PROMPT), answer_ids(), vec![IM_END]].concat();
    assert_eq!(whole["context"], json!(context));
    let streamed = lines(server.post("/api/generate", &generate(json!({}))).await).await;
    assert_eq!(streamed.last().unwrap()["context"], json!(context));
    assert!(streamed.iter().rev().skip(1).all(|line| line.get("context").is_none()));
    let (_, server) = server.report().await;
    let (_, server) = server.report().await;
    let body = generate(json!({"context": context, "stream": false}));
    ok(server.post("/api/generate", &body).await).await;
    let (report, _) = server.report().await;
    // A text begins once.
    assert_eq!(report.request.prompt, [context.as_slice(), &ids(PROMPT)[1..]].concat());
}

#[tokio::test]
async fn raw_prompts_go_without_a_template() {
    let server = Server::start([Act::Say("hello!<|im_end|>")]).await;
    let body = generate(json!({"raw": true, "stream": false}));
    let whole = ok(server.post("/api/generate", &body).await).await;
    assert_eq!(whole["response"], "hello!");
    assert!(whole.get("context").is_none());
    let (report, server) = server.report().await;
    assert!(report.request.prompt.ends_with(&ids("hi")) && report.request.prompt.len() < 4);
    let context = generate(json!({"raw": true, "context": [1]}));
    check_error(server.post("/api/generate", &context).await, 400, "context").await;
}

#[tokio::test]
async fn system_and_think_reach_the_template() {
    let server = Server::start([ANSWER]).await;
    let body = generate(json!({"system": "be", "think": false, "stream": false}));
    ok(server.post("/api/generate", &body).await).await;
    let (report, _) = server.report().await;
    let prompt =
        PROMPT.replace("<|im_start|>user", "<|im_start|>system\nbe<|im_end|>\n<|im_start|>user");
    assert_eq!(report.request.prompt, ids(&format!("{prompt}<think>\n\n</think>\n\n")));
}

#[tokio::test]
async fn a_suffix_makes_a_gap() {
    let scripted = scripted_with_assets(assets_with_marks(), vec![Act::Say("hello!")], 4);
    let server = Server::serve(scripted, ServerOptions::default());
    let body = generate(json!({"suffix": "lo", "stream": false}));
    let whole = ok(server.post("/api/generate", &body).await).await;
    assert_eq!(whole["response"], "hello!");
    let (report, _) = server.report().await;
    let marked = [&[MARKS], &ids("hi")[..], &[MARKS + 1], &ids("lo"), &[MARKS + 2]].concat();
    assert!(report.request.prompt.ends_with(&marked), "{:?}", report.request.prompt);
    let server = Server::start([]).await;
    check_error(server.post("/api/generate", &body).await, 400, "gap").await;
}

#[tokio::test]
async fn log_probabilities_are_told_where_they_are_asked_for() {
    let server = Server::start([Act::Say("hello")]).await;
    let body = chat(json!({"stream": false, "logprobs": true, "top_logprobs": 2}));
    let whole = ok(server.post("/api/chat", &body).await).await;
    let first = &whole["logprobs"][0];
    assert_eq!((&first["token"], &first["logprob"]), (&json!("hello"), &json!(-0.25)));
    assert_eq!(first["top_logprobs"].as_array().unwrap().len(), 2);
    let body = chat(json!({"top_logprobs": 2}));
    check_error(server.post("/api/chat", &body).await, 400, "top_logprobs").await;
}

#[tokio::test]
async fn nothing_to_do_loads_or_unloads() {
    let server = Server::start([]).await;
    let message = json!({"role": "assistant", "content": ""});
    for (keep, reason) in [(json!("5m"), "load"), (json!(0), "unload"), (json!(null), "load")] {
        let body = json!({"model": "m", "keep_alive": keep});
        let chat = stable(ok(server.post("/api/chat", &body).await).await);
        let done = json!({"model": "test/model", "message": message, "done": true,
                          "done_reason": reason});
        assert_eq!(chat, done);
        let generate = stable(ok(server.post("/api/generate", &body).await).await);
        let done = json!({"model": "test/model", "response": "", "done": true,
                          "done_reason": reason});
        assert_eq!(generate, done);
    }
    assert!(server.no_report());
}

#[tokio::test]
async fn what_no_answer_could_be_made_with_is_refused_also_where_none_is_to_be_made() {
    let server = Server::start([]).await;
    let body = json!({"options": {"frequency_penalty": -101}});
    for path in ["/api/chat", "/api/generate"] {
        check_error(server.post(path, &body).await, 400, "frequency_penalty").await;
    }
    let body = json!({"context": [2_147_483_648_u32]});
    check_error(server.post("/api/generate", &body).await, 400, "2147483648").await;
    assert!(server.no_report());
}

#[tokio::test]
async fn an_error_on_the_way_is_the_last_line() {
    let server = Server::start([Act::Say("hello"), Act::Fail("it broke")]).await;
    let lines = lines(server.post("/api/chat", &chat(json!({}))).await).await;
    assert_eq!(lines[0]["message"]["content"], "hello");
    assert_eq!(lines[1..], [json!({"error": "it broke"})]);
    let whole = server.post("/api/chat", &chat(json!({"stream": false}))).await;
    check_error(whole, 500, "it broke").await;
}

#[tokio::test]
async fn what_cannot_be_is_refused_in_its_own_words() {
    let server = Server::start([]).await;
    for (extra, part) in [
        (json!({"messages": "hi"}), "messages"),
        (json!({"messages": [{"content": "x"}]}), "messages[0]"),
        (json!({"messages": [{"role": "user", "content": {}}]}), "messages[0].content"),
        (json!({"messages": [{"role": "user", "images": ["aGk="]}]}), "messages[0].images"),
        (json!({"messages": [{"role": "forbidden", "content": ""}]}), "no such role"),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [{"function": 1}]}]}),
            "messages[0].tool_calls[0].function",
        ),
        (json!({"options": {"temperature": -1}}), "temperature"),
        (json!({"options": {"mirostat": 1}}), "options.mirostat"),
        (json!({"options": 3}), "options"),
        (json!({"format": "xml"}), "format"),
        (json!({"format": [1]}), "format"),
        (json!({"keep_alive": "soon"}), "keep_alive"),
        (json!({"keep_alive": []}), "keep_alive"),
        (json!({"think": "a lot"}), "think"),
        (json!({"tools": [1]}), "tools[0]"),
        (json!({"stream": "yes"}), "stream"),
        (json!({"top_logprobs": -1}), "top_logprobs"),
    ] {
        check_error(server.post("/api/chat", &chat(extra)).await, 400, part).await;
    }
    for (extra, part) in [
        (json!({"template": "{{ x }}"}), "template"),
        (json!({"images": ["aGk="]}), "images"),
        (json!({"prompt": [1]}), "prompt"),
        (json!({"context": [-1]}), "context[0]"),
        (json!({"context": [1_000_000]}), "1000000"),
    ] {
        check_error(server.post("/api/generate", &generate(extra)).await, 400, part).await;
    }
    check_error(server.post("/api/chat", &json!([])).await, 400, "object").await;
    assert!(server.no_report());
}

#[tokio::test]
async fn a_prompt_that_does_not_fit_is_refused_with_both_sizes() {
    let server = Server::start([]).await;
    let extra = json!({"prompt": "hi".repeat(CONTEXT), "options": {"num_ctx": 1_000_000}});
    let response = server.post("/api/generate", &generate(extra)).await;
    check_error(response, 400, &format!("context size of {CONTEXT} tokens")).await;
}

#[tokio::test]
async fn the_model_is_listed_and_described() {
    let server = Server::start([]).await;
    let tags = ok(server.get("/api/tags").await).await;
    let details = json!({
        "parent_model": "", "format": "gguf", "family": "script", "families": ["script"],
        "parameter_size": "600.00M", "quantization_level": "Q8_0",
    });
    let tag = json!({
        "name": "test/model", "model": "test/model",
        "modified_at": "2023-11-14T22:13:20.000000000Z", "size": 1000,
        "digest": "0123456789abcdef", "details": details,
    });
    assert_eq!(tags, json!({"models": [tag]}));
    let running = ok(server.get("/api/ps").await).await;
    assert_eq!(running["models"][0]["context_length"], CONTEXT);
    assert_eq!(running["models"][0]["details"], details);
    let shown = ok(server.post("/api/show", &json!({"model": "test/model"})).await).await;
    assert_eq!(shown["details"], details);
    assert_eq!(shown["capabilities"], json!(["completion", "tools", "thinking", "embedding"]));
    assert_eq!(shown["model_info"]["general.architecture"], "script");
    assert_eq!(shown["model_info"]["script.context_length"], 2 * CONTEXT);
    assert!(shown["template"].as_str().unwrap().contains("im_start"));
    assert!(shown["parameters"].as_str().unwrap().starts_with("temperature "));
    let version = ok(server.get("/api/version").await).await;
    assert_eq!(version, json!({"version": "0.14.0"}));
    let own = ok(server.get("/version").await).await;
    assert_eq!(own, json!({"name": "gannet", "version": env!("CARGO_PKG_VERSION")}));
}

#[tokio::test]
async fn other_models_are_for_other_servers() {
    let server = Server::start([]).await;
    for path in ["pull", "push", "create", "copy"] {
        let response = server.post(&format!("/api/{path}"), &json!({"model": "x"})).await;
        check_error(response, 501, "test/model").await;
    }
    let request = server.client.request(Method::DELETE, server.url("/api/delete"));
    check_error(request.send().await.unwrap(), 501, "one model").await;
    check_error(server.get("/api/nothing").await, 404, "no such endpoint").await;
    for path in ["/", "/api/version", "/api/tags"] {
        let response = server.client.head(server.url(path)).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn texts_to_embed_end_where_the_context_does_unless_that_is_refused() {
    let server = Server::start([]).await;
    let long = "x".repeat(CONTEXT + 50);
    let body = json!({"input": ["a", long]});
    let answer = ok(server.post("/api/embed", &body).await).await;
    let counted = CONTEXT + ids("a").len() + 1;
    assert_eq!(answer["prompt_eval_count"], counted, "{answer}");
    ok(server.post("/api/embeddings", &json!({ "prompt": long })).await).await;
    let body = json!({"input": long, "truncate": false});
    let response = server.post("/api/embed", &body).await;
    check_error(response, 400, "tokens exceeds the available context size").await;
    for body in [json!({"input": []}), json!({"input": ""}), json!({})] {
        let none = ok(server.post("/api/embed", &body).await).await;
        assert_eq!((&none["embeddings"], &none["prompt_eval_count"]), (&json!([]), &json!(0)));
    }
    let response = server.post("/api/embed", &json!({"dimensions": 0})).await;
    check_error(response, 400, "must be at least 1").await;
}

#[tokio::test]
async fn vectors_are_made_of_one_text_or_of_several() {
    let server = Server::start([]).await;
    let response = server.post("/api/embed", &json!({"model": "m", "input": ["ab", "c"]})).await;
    let answer = ok(response).await;
    assert_eq!(answer["embeddings"].as_array().unwrap().len(), 2);
    let counted = ids("ab").len() + ids("c").len();
    assert!(answer["prompt_eval_count"].as_u64().unwrap() >= counted as u64, "{answer}");
    let response = server.post("/api/embeddings", &json!({"prompt": "ab"})).await;
    assert!(!ok(response).await["embedding"].as_array().unwrap().is_empty());
    let response = server.post("/api/embed", &json!({"input": [1]})).await;
    assert_eq!(response.status(), 400);
}
