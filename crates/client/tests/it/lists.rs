//! Lists of models, and log probabilities.

use crate::scripted::{KEY, PATIENCE, ScriptedServer, ServerAct};
use client::{ClientError, ListedModel, ScoreQuery, Wait};
use serde_json::{Value, json};
use std::time::Duration;

fn answering(body: &Value) -> ScriptedServer {
    ScriptedServer::answering("200 OK", "application/json", &body.to_string())
}

#[test]
fn models_are_listed_with_their_contexts() {
    let server = answering(&json!({"object": "list", "data": [
        {"id": "a", "context_length": 4096, "max_model_len": 4096, "meta": {"n_ctx": 4096}},
        {"id": "b", "object": "model", "created": 1},
    ]}));
    let listed = |id: &str, context_length| ListedModel { id: id.into(), context_length };
    let models = server.client().models(Wait::at_most(PATIENCE)).unwrap();
    assert_eq!(models, [listed("a", Some(4096)), listed("b", None)]);
    let request = server.report().unwrap();
    assert!(request.starts_with("GET /v1/models HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("authorization: Bearer {KEY}\r\n")), "{request}");
    assert!(!request.contains("content-type"), "{request}");
}

#[test]
fn a_list_cut_anywhere_is_an_error() {
    let body = r#"{"data": [{"id": "a", "context_length": 4096}]}"#;
    for end in 0..body.len() {
        let server = ScriptedServer::sending(format!("HTTP/1.1 200 OK\r\n\r\n{}", &body[..end]));
        let error = server.client().models(Wait::at_most(PATIENCE)).unwrap_err();
        assert!(matches!(error, ClientError::Malformed { .. }), "{end}: {error}");
    }
}

#[test]
fn a_list_is_cancelled_as_well() {
    let server = ScriptedServer::new(vec![
        ServerAct::Send(b"HTTP/1.1 200 OK\r\n\r\n{".to_vec()),
        ServerAct::Stay,
    ]);
    let begin = std::time::Instant::now();
    let cancelled = || begin.elapsed() > Duration::from_millis(150);
    let wait = Wait { idle: PATIENCE, cancelled: &cancelled };
    assert_eq!(server.client().models(wait), Err(ClientError::Cancelled));
}

#[test]
fn a_text_is_scored() {
    let server = answering(&json!({
        "choices": [{"text": "a b", "index": 0, "finish_reason": "length", "logprobs": {
            "tokens": ["a", " b"], "token_logprobs": [null, -0.25], "text_offset": [0, 1],
            "top_logprobs": [null, {" b": -0.25}],
        }}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 0, "total_tokens": 2},
    }));
    let query = ScoreQuery { model: "m".into(), text: "a b".into(), ..ScoreQuery::default() };
    let scored = server.client().score(&query, Wait::at_most(PATIENCE)).unwrap();
    let found: Vec<_> =
        scored.tokens.iter().map(|token| (token.text.as_str(), token.logprob)).collect();
    assert_eq!(found, [("a", None), (" b", Some(-0.25))]);
    assert_eq!((scored.prompt_tokens, scored.tokens[1].offset), (Some(2), Some(1)));
    let request = server.report().unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/completions HTTP/1.1\r\n"), "{head}");
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        (&body["prompt"], &body["echo"], &body["max_tokens"]),
        (&json!("a b"), &json!(true), &json!(0))
    );
}

#[test]
fn a_server_that_does_not_echo_is_no_score() {
    let lists = json!({"tokens": ["c"], "token_logprobs": [-0.25]});
    let usage = json!({"prompt_tokens": 2, "completion_tokens": 1});
    let server = answering(&json!({"choices": [{"logprobs": lists}], "usage": usage}));
    let query = ScoreQuery { generate: true, ..ScoreQuery::default() };
    let error = server.client().score(&query, Wait::at_most(PATIENCE)).unwrap_err();
    assert!(error.to_string().contains("(echo)"), "{error}");
}
