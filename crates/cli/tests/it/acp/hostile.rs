//! Lines that are no messages, and messages that are none of the protocol.

use super::editor::Place;
use super::model::{ModelServer, text};
use serde_json::{Value, json};

fn model() -> ModelServer {
    ModelServer::of(|| vec![text("one"), text("two")])
}

#[test]
fn lines_of_any_bytes_are_errors_and_the_next_line_is_read() {
    let place = Place::new();
    let model = model();
    let (mut editor, session) = place.session(&model.url, &[]);
    let mut state = 1u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    for length in 0..200 {
        let line: Vec<u8> = (0..length).map(|_| random()).filter(|it| *it != b'\n').collect();
        editor.line(&line);
    }
    let nested = "[".repeat(100_000);
    let lines = [
        "null",
        "[]",
        "{}",
        "\"x\"",
        "{\"jsonrpc\":\"2.0\"}",
        "{\"jsonrpc\":\"1.0\",\"id\":1}",
        "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"initialize\"}",
        &nested,
    ];
    lines.iter().for_each(|line| editor.line(line.as_bytes()));
    for _ in 0..lines.len() {
        let is_error = |message: &Value| message.get("error").is_some();
        let error = editor.wait(is_error);
        assert!(error["id"].is_null(), "{error}");
        assert!([-32700, -32600].contains(&error["error"]["code"].as_i64().unwrap()), "{error}");
    }
    assert_eq!(editor.work(&session, "x"), "end_turn");
}

#[test]
fn a_huge_line_is_an_error() {
    let place = Place::new();
    let model = model();
    let (mut editor, session) = place.session(&model.url, &[]);
    editor.line(&vec![b'['; 40 << 20]);
    let error = editor.wait(|message| message.get("error").is_some());
    assert_eq!(error["error"]["code"], -32600);
    assert_eq!(editor.work(&session, "x"), "end_turn");
}

#[test]
fn requests_of_other_forms_are_errors() {
    let place = Place::new();
    let model = model();
    let mut editor = place.editor(&model.url, &[]);
    // Before `initialize`.
    assert_eq!(editor.call("session/new", json!({"cwd": place.work()})), Err(-32600));
    assert_eq!(editor.call("initialize", json!({})), Err(-32602));
    assert_eq!(editor.call("initialize", json!([1])), Err(-32602));
    assert_eq!(
        editor.call("initialize", json!({"protocolVersion": 99})).unwrap()["protocolVersion"],
        1
    );
    let session = editor.new_session(&place.work());
    let wrong = [
        ("session/prompt", Value::Null),
        ("session/prompt", json!({"sessionId": 1, "prompt": []})),
        ("session/prompt", json!({"sessionId": session, "prompt": "x"})),
        ("session/prompt", json!({"sessionId": session, "prompt": []})),
        ("session/prompt", json!({"sessionId": session, "prompt": [{"type": "image"}]})),
        ("session/prompt", json!({"sessionId": session, "prompt": [{"text": "x"}]})),
        ("session/set_mode", json!({"sessionId": session, "modeId": 1})),
        ("session/load", json!({"cwd": place.work(), "mcpServers": []})),
        ("session/new", json!({"cwd": [], "mcpServers": []})),
        ("session/close", json!({})),
    ];
    for (method, params) in wrong {
        assert_eq!(editor.call(method, params.clone()), Err(-32602), "{method} {params}");
    }
    for method in
        ["session/other", "authenticate", "session/cancel", "", "session/request_permission"]
    {
        assert_eq!(editor.call(method, json!({"sessionId": session})), Err(-32601), "{method}");
    }
    for (method, params) in
        [("session/cancel", json!(1)), ("$/other", json!({})), ("", json!(null))]
    {
        editor.notify(method, params);
    }
    // Null and text are ids too.
    for id in [json!(null), json!("a\n")] {
        editor.send(&json!({"jsonrpc": "2.0", "id": id, "method": "nothing"}));
        assert_eq!(editor.wait(|message| message["id"] == id)["error"]["code"], -32601);
    }
    assert_eq!(editor.work(&session, "x"), "end_turn");
}
