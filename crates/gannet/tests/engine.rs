//! The library on the built-in model.

#![allow(missing_docs)]

use gannet::{
    Bits, ChatRequest, Engine, Error, FinishReason, GrammarSource, Request, Sampling, TextRequest,
};
use std::path::Path;
use std::sync::LazyLock;

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");

static ENGINE: LazyLock<Engine> =
    LazyLock::new(|| Engine::builder().parallel(3).load(TINY).unwrap());

fn sum(n: usize) -> Request {
    Request::chat(format!("What is {n} + 4?")).temperature(0.0).max_tokens(20)
}

fn refusal(request: impl Into<Request>) -> String {
    ENGINE.answer(request).unwrap_err().to_string()
}

#[test]
fn an_engine_is_shared_between_threads() {
    fn shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    shared(&*ENGINE);
    let answers: Vec<String> = std::thread::scope(|scope| {
        let ask = |n| scope.spawn(move || ENGINE.clone().answer(sum(n)).unwrap().text);
        let threads: Vec<_> = (0..6).map(ask).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (n, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer, format!("{n} + 4 = {}.", n + 4));
    }
}

#[test]
fn a_batch_answers_every_request_as_it_is_answered_alone() {
    let mut answers: Vec<_> = ENGINE.batch((0..40).map(sum)).collect();
    answers.sort_by_key(|&(place, _)| place);
    assert_eq!(answers.len(), 40);
    for (n, (place, answer)) in answers.into_iter().enumerate() {
        let (answer, alone) = (answer.unwrap(), ENGINE.answer(sum(n)).unwrap());
        // What was computed before is in the cache by then, and drafts depend on the time.
        let gannet::Usage { cached_tokens, drafted_tokens, accepted_tokens, .. } = answer.usage;
        let usage = gannet::Usage { cached_tokens, drafted_tokens, accepted_tokens, ..alone.usage };
        assert_eq!((place, answer.text, answer.usage), (n, alone.text, usage));
    }
}

#[test]
fn a_refused_request_is_an_error_in_its_place() {
    let requests = [sum(1), sum(2).temperature(-1.0), sum(3)];
    let mut failed: Vec<_> =
        ENGINE.batch(requests).map(|(place, answer)| (place, answer.is_err())).collect();
    failed.sort_unstable();
    assert_eq!(failed, [(0, false), (1, true), (2, false)]);
}

#[test]
fn a_batch_without_an_end_is_drawn_from_as_there_is_room() {
    let mut drawn = 0;
    let endless = std::iter::repeat_with(|| {
        drawn += 1;
        sum(drawn)
    });
    assert_eq!(ENGINE.batch(endless).take(4).filter(|(_, answer)| answer.is_ok()).count(), 4);
    assert!((4..=10).contains(&drawn), "{drawn}");
    assert_eq!(ENGINE.batch(std::iter::empty::<Request>()).count(), 0);
}

#[test]
fn the_pieces_of_a_stream_are_the_answer() {
    let request = || Request::chat("What is 12 + 30?").think(true).temperature(0.0);
    let mut stream = ENGINE.stream(request()).unwrap();
    let (mut text, mut reasoning) = (String::new(), String::new());
    for delta in &mut stream {
        let delta = delta.unwrap();
        if delta.is_reasoning { &mut reasoning } else { &mut text }.push_str(&delta.text);
    }
    let answer = stream.finish().unwrap();
    assert_eq!((&answer.text, &answer.reasoning), (&text, &reasoning));
    assert!(!reasoning.is_empty() && answer.usage.reasoning_tokens > 0, "{answer:?}");
    assert_eq!(ENGINE.answer(request()).unwrap().text, text);
}

#[test]
fn a_stream_that_is_dropped_leaves_the_engine_to_others() {
    let mut stream = ENGINE.stream(Request::complete("A")).unwrap();
    assert!(stream.next().unwrap().is_ok());
    drop(stream);
    assert_eq!(ENGINE.chat("What is 3 + 4?").unwrap().text, "3 + 4 = 7.");
}

#[test]
fn the_services_own_requests_are_taken_too() {
    let sampling = Sampling { logprobs: Some(1), max_tokens: Some(2), ..Sampling::default() };
    let chat = ChatRequest {
        messages: vec![gannet::Message::user("Hello")],
        sampling: sampling.clone(),
        ..ChatRequest::default()
    };
    let answer = ENGINE.answer(chat).unwrap();
    assert_eq!(answer.tokens.len(), 2);
    let prompt = gannet::Prompt::Ids(vec![1, 2, 3]);
    let text = TextRequest { prompt, add_special: false, sampling, grammar: None };
    assert_eq!(ENGINE.answer(text).unwrap().usage.prompt_tokens, 3);
}

#[test]
fn an_answer_held_to_a_schema_is_valid_and_ends_with_it() {
    let json = serde_json::json!({"type": "object", "additionalProperties": false,
        "properties": {"sum": {"type": "integer"}, "sure": {"type": "boolean"}},
        "required": ["sum", "sure"]});
    let mut finished = 0;
    for seed in 0..4 {
        let chat = ChatRequest {
            messages: vec![gannet::Message::user("What is 3 + 4?")],
            sampling: Sampling { seed: Some(seed), max_tokens: Some(200), ..Sampling::default() },
            grammar: Some(GrammarSource::JsonSchema(json.clone())),
            ..ChatRequest::default()
        };
        let answer = ENGINE.answer(chat).unwrap();
        if answer.finish_reason == FinishReason::Length {
            continue;
        }
        finished += 1;
        let value: serde_json::Value = serde_json::from_str(answer.text.trim()).unwrap();
        assert!(value["sum"].is_i64() && value["sure"].is_boolean(), "{value}");
    }
    assert!(finished > 0, "all answers were too long");
}

#[test]
fn refusals_name_the_field() {
    assert!(refusal(Request::chat("x").top_p(3.0)).contains("top_p"));
    assert!(refusal(Request::chat("x").max_tokens(0)).contains("max_tokens"));
    assert!(refusal(Request::chat("x").stop("")).contains("stop"));
    assert!(refusal("x ".repeat(3000).as_str()).contains("context size of 2048 tokens"));
    assert!(refusal(Request::complete("")).contains("prompt"));
}

#[test]
fn errors_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let check = |path: &Path, expected: &str| {
        let error = Engine::load(path).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(&folder.path().join("none.gguf"), "none.gguf");
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(Path::new(TINY).join(name), folder.path().join(name)).unwrap();
    }
    check(folder.path(), "tokenizer");
    let missing = folder.path().join("template.jinja");
    let error = Engine::builder().chat_template(&missing).load(TINY).unwrap_err();
    assert!(matches!(&error, Error::Template { path, .. } if *path == missing), "{error}");
    let error = Engine::builder().context(0).load(TINY).unwrap_err();
    assert!(matches!(error, Error::Model { .. }), "{error}");
}

#[test]
fn a_tool_that_must_be_called_is_called() {
    let city = serde_json::json!({"type": "string", "enum": ["Paris", "Rome"]});
    let schema = serde_json::json!({"type": "object", "properties": {"city": city},
        "required": ["city"], "additionalProperties": false});
    let chat = ChatRequest {
        messages: vec![gannet::Message::user("How warm is it?")],
        tools: vec![
            serde_json::json!({"type": "function",
            "function": {"name": "weather", "parameters": schema}})
            .into(),
        ],
        tool_choice: gannet::ToolChoice::Required,
        sampling: Sampling { max_tokens: Some(400), ..Sampling::default() },
        ..ChatRequest::default()
    };
    let answer = ENGINE.answer(chat).unwrap();
    assert_eq!(answer.finish_reason, FinishReason::ToolCalls, "{answer:?}");
    let call = &answer.calls[0];
    let arguments: serde_json::Value = serde_json::from_str(&call.arguments).unwrap();
    assert_eq!(call.name, "weather");
    assert!(["Paris", "Rome"].contains(&arguments["city"].as_str().unwrap()), "{arguments}");
}

/// The vector that the service computes of a text alone.
fn vector(engine: &Engine, text: &str) -> Vec<f32> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let embed = engine::Embed { normalize: true, ..engine::Embed::default() };
    let (service, prompt) = (engine.service(), gannet::Prompt::from(text));
    runtime.block_on(service.embed(&prompt, embed, &Default::default())).unwrap().vector
}

#[test]
fn texts_that_are_embedded_together_have_the_vectors_of_each_alone() {
    let texts: Vec<String> = (0..15).map(|n| format!("{n} birds sing. ").repeat(n + 1)).collect();
    let vectors = ENGINE.embed(&texts).unwrap();
    assert_eq!(vectors.len(), texts.len());
    for (found, text) in vectors.iter().zip(&texts) {
        assert!(*found == vector(&ENGINE, text), "{text}");
        let length: f32 = found.iter().map(|value| value * value).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
    assert!(ENGINE.embed(&[""; 0]).unwrap().is_empty());
    let error = ENGINE.embed(&["a", &"long ".repeat(100_000)]).unwrap_err().to_string();
    assert!(error.contains("context size"), "{error}");
}

#[test]
fn relevances_are_those_of_each_document_alone() {
    let refused = ENGINE.rerank("a", &["b"]).unwrap_err().to_string();
    assert_eq!(refused, "the model has no head that scores texts");
    let Some(path) = fixtures::find("embeddings/bert_reranker") else { return };
    let engine = Engine::builder().parallel(2).load(path).unwrap();
    let documents = ["Paris is a city.", "no", "Water is wet.", "yes", "Rome is a city.", "a"];
    let relevances = engine.rerank("Where is Paris?", &documents).unwrap();
    for (found, document) in relevances.iter().zip(documents) {
        assert_eq!([*found], engine.rerank("Where is Paris?", &[document]).unwrap()[..]);
        assert!(*found > 0.0 && *found < 1.0, "{found}");
    }
    let distinct = relevances.iter().any(|relevance| *relevance != relevances[0]);
    assert!(distinct && relevances.len() == documents.len(), "{relevances:?}");
    assert!(engine.logits("a").unwrap_err().to_string().contains("scores texts"));
}

#[test]
fn portable_bits_have_an_arithmetic_that_every_cpu_has() {
    let engine = Engine::builder().threads(1).context(64).bits(Bits::Portable).load(TINY).unwrap();
    assert_eq!(engine.arithmetic(), "f32");
}

#[test]
fn the_last_row_of_logits_is_what_an_answer_begins_with() {
    let text = "The capital of France is";
    let rows = ENGINE.logits(text).unwrap();
    let ids = ENGINE.service().tokenize(text, text::EncodeOptions::default()).unwrap();
    assert!(rows == ENGINE.logits(ids.clone()).unwrap(), "the model adds no special tokens");
    assert_eq!((rows.len(), rows[0].len()), (ids.len(), ENGINE.info().vocab_size));
    let sampling = Sampling { logprobs: Some(0), temperature: Some(0.0), ..Sampling::default() };
    let answer = ENGINE.answer(Request::complete(text).sampling(sampling).max_tokens(1)).unwrap();
    let logprob = |row: &[f32], id: usize| {
        let total: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
        f64::from(row[id]) - total.ln()
    };
    let last = rows.last().unwrap();
    let best = (0..last.len()).max_by(|a, b| last[*a].total_cmp(&last[*b])).unwrap();
    assert!((logprob(last, best) - f64::from(answer.tokens[0].logprob)).abs() < 1e-4);
    assert_eq!(ENGINE.service().decode(&[best as u32]), answer.text);
    // A row depends on nothing after it, and not on the cache.
    let prefix = ENGINE.logits(&ids[..3]).unwrap();
    assert!(prefix == rows[..3]);
    assert!(ENGINE.logits("").is_err() && ENGINE.logits([u32::MAX]).is_err());
}
