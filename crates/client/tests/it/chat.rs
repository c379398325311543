//! Streamed answers from the request to the last event.

use crate::scripted::{KEY, PATIENCE, STREAM, ScriptedServer, ServerAct, query};
use client::{ChatEvent, ChatQuery, QuerySampling, RemoteServer, Wait};
use serde_json::{Value, json};

const ANSWER: &str = concat!(
    "data: {\"choices\": [{\"delta\": {\"reasoning\": \"h\u{e9}\"}}]}\n\n",
    "data: {\"choices\": [{\"delta\": {\"content\": \"a\"}, \"finish_reason\": \"stop\"}]}\n\n",
    "data: {\"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 2}}\n\n",
    "data: [DONE]\n\n",
);

fn events() -> Vec<ChatEvent> {
    vec![
        ChatEvent::Reasoning("h\u{e9}".into()),
        ChatEvent::Content("a".into()),
        ChatEvent::Finish("stop".into()),
        ChatEvent::Usage { prompt: 3, cached: None, completion: 2 },
    ]
}

/// A response whose body has a chunk of HTTP for each piece of `size` bytes.
fn chunked(size: usize) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
        transfer-encoding: chunked\r\n\r\n";
    let mut response = head.as_bytes().to_vec();
    for piece in ANSWER.as_bytes().chunks(size) {
        response.extend(format!("{:x}\r\n", piece.len()).into_bytes());
        response.extend_from_slice(piece);
        response.extend_from_slice(b"\r\n");
    }
    response.extend_from_slice(b"0\r\n\r\n");
    response
}

#[test]
fn an_answer_comes_event_by_event() {
    for size in [1, 7, 9999] {
        let server = ScriptedServer::sending(chunked(size));
        assert_eq!(server.events(), (events(), None), "{size}");
    }
    let server = ScriptedServer::sending(format!("{STREAM}{ANSWER}"));
    assert_eq!(server.events(), (events(), None));
    // The type of the content is not required.
    let server = ScriptedServer::sending(format!("HTTP/1.1 200 OK\r\n\r\n{ANSWER}"));
    assert_eq!(server.events(), (events(), None));
}

#[test]
fn a_connection_cut_at_any_byte_gives_the_beginning_and_an_error() {
    let whole = format!("{STREAM}{ANSWER}");
    let finished = whole.find("data: {\"usage").unwrap();
    for end in 0..whole.len() {
        let (found, error) = ScriptedServer::sending(&whole.as_bytes()[..end]).events();
        assert!(events().starts_with(&found), "{end}: {found:?}");
        assert_eq!(error.is_none(), end >= finished, "{end}: {error:?}");
    }
}

#[test]
fn a_chunked_connection_cut_at_any_byte_gives_the_beginning_and_an_error() {
    let whole = chunked(60);
    let done = whole.windows(6).position(|window| window == b"[DONE]").unwrap();
    for end in 0..whole.len() {
        let (found, error) = ScriptedServer::sending(&whole[..end]).events();
        assert!(events().starts_with(&found), "{end}: {found:?}");
        assert!(error.is_some() || end > done, "{end}: {error:?}");
    }
}

#[test]
fn the_request_has_the_key_and_the_body() {
    let server = ScriptedServer::sending(format!("{STREAM}{ANSWER}"));
    let query = ChatQuery {
        tools: vec![json!({"type": "function", "function": {"name": "f"}})],
        sampling: QuerySampling { max_tokens: Some(7), ..QuerySampling::default() },
        ..query()
    };
    server.client().chat(&query, Wait::at_most(PATIENCE)).unwrap();
    let request = server.report().unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nauthorization: Bearer {KEY}")), "{head}");
    assert!(head.contains("\r\ncontent-type: application/json"), "{head}");
    let address = server.url.strip_prefix("http://").unwrap();
    assert!(head.contains(&format!("\r\nhost: {address}")), "{head}");
    let expected = json!({
        "model": "m", "messages": [{"role": "user", "content": "hello"}],
        "tools": [{"type": "function", "function": {"name": "f"}}], "max_tokens": 7,
        "stream": true, "stream_options": {"include_usage": true},
    });
    assert_eq!(serde_json::from_str::<Value>(body).unwrap(), expected);
}

#[test]
fn without_a_key_no_header_is_sent() {
    let server = ScriptedServer::sending(format!("{STREAM}{ANSWER}"));
    for key in [None, Some(""), Some(" ")] {
        let client = RemoteServer::new(&server.url, key).unwrap();
        client.chat(&query(), Wait::at_most(PATIENCE)).unwrap();
        let request = server.report().unwrap();
        assert!(!request.contains("authorization"), "{request}");
    }
}

#[test]
fn the_end_and_the_first_error_repeat() {
    let mut stream =
        ScriptedServer::sending(format!("{STREAM}{ANSWER}")).chat(Wait::at_most(PATIENCE)).unwrap();
    while stream.next(Wait::at_most(PATIENCE)).unwrap().is_some() {}
    assert_eq!(stream.next(Wait::at_most(PATIENCE)), Ok(None));
    let mut stream = ScriptedServer::sending(format!("{STREAM}data: ?\n\n"))
        .chat(Wait::at_most(PATIENCE))
        .unwrap();
    let first = stream.next(Wait::at_most(PATIENCE)).unwrap_err();
    assert_eq!(stream.next(Wait::at_most(PATIENCE)), Err(first));
}

#[test]
fn events_before_a_malformed_one_are_delivered() {
    let text = "data: {\"choices\": [{\"delta\": {\"content\": \"a\"}}]}\n\n";
    let (events, error) =
        ScriptedServer::sending(format!("{STREAM}{text}data: ?\n\n{text}")).events();
    assert_eq!(events, [ChatEvent::Content("a".into())]);
    assert!(error.unwrap().to_string().contains("found ?"));
}

#[test]
fn a_complete_answer_closes_the_connection() {
    let server = ScriptedServer::new(vec![ServerAct::Send(chunked(9999)), ServerAct::Stay]);
    let mut stream = server.chat(Wait::at_most(PATIENCE)).unwrap();
    while stream.next(Wait::at_most(PATIENCE)).unwrap().is_some() {}
    server.report().unwrap();
    assert_eq!(server.report().as_deref(), Ok("closed"));
    drop(stream);
}
