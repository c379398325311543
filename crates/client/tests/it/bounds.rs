//! Sizes that no server can exceed.

use crate::scripted::{PATIENCE, STREAM, ScriptedServer, ServerAct};
use client::{ClientError, Wait};
use std::time::Instant;

const MIB: usize = 1 << 20;

fn too_large(server: &ScriptedServer, what: &'static str, limit: usize) -> ClientError {
    let url = format!("{}/v1/chat/completions", server.url);
    ClientError::TooLarge { url, what, limit }
}

#[test]
fn a_line_without_an_end_is_refused() {
    let mut acts = vec![ServerAct::Send(format!("{STREAM}data: ").into_bytes())];
    acts.extend((0..9).map(|_| ServerAct::Send(vec![b'x'; MIB])));
    let server = ScriptedServer::new(acts);
    let error = server.events().1.unwrap();
    assert_eq!(error, too_large(&server, "an event of the stream", 8 * MIB));
}

#[test]
fn an_event_of_many_lines_is_refused() {
    let lines = format!("data: {}\n", "x".repeat(1017)).repeat(9 << 10);
    let server = ScriptedServer::sending(format!("{STREAM}{lines}"));
    let error = server.events().1.unwrap();
    assert_eq!(error, too_large(&server, "an event of the stream", 8 * MIB));
}

#[test]
fn an_event_below_the_limit_is_read() {
    let text = "x".repeat(7 * MIB);
    let chunk = format!(
        r#"{{"choices": [{{"delta": {{"content": "{text}"}}, "finish_reason": "stop"}}]}}"#
    );
    let (events, error) = ScriptedServer::sending(format!("{STREAM}data: {chunk}\n\n")).events();
    assert_eq!((events.len(), error), (2, None));
}

#[test]
fn an_answer_without_an_end_is_refused() {
    let comments = format!(":{}\n", "x".repeat(1022)).repeat(1 << 10).into_bytes();
    let mut acts = vec![ServerAct::Send(STREAM.as_bytes().to_vec())];
    acts.extend((0..65).map(|_| ServerAct::Send(comments.clone())));
    let server = ScriptedServer::new(acts);
    let error = server.events().1.unwrap();
    assert_eq!(error, too_large(&server, "an answer", 64 * MIB));
}

#[test]
fn the_body_of_an_error_is_read_to_its_limit() {
    let head = ServerAct::Send(b"HTTP/1.1 500 Oops\r\n\r\noops ".to_vec());
    let body = ServerAct::Send(vec![b'x'; 64 << 10]);
    // A client that reads on waits for more.
    let (server, begin) = (ScriptedServer::new(vec![head, body, ServerAct::Stay]), Instant::now());
    let error = server.events().1.unwrap();
    assert!(begin.elapsed() < PATIENCE / 2, "{:?}", begin.elapsed());
    let ClientError::Refused { status: Some(500), message, .. } = &error else {
        panic!("{error}");
    };
    assert!(message.starts_with("oops xxx") && message.len() == 300, "{message}");
}

#[test]
fn a_message_is_shortened() {
    let body = format!(r#"{{"error": {{"message": "{}"}}}}"#, "x".repeat(60_000));
    let error = ScriptedServer::answering("400 Bad Request", "application/json", &body).events().1;
    let ClientError::Refused { message, .. } = error.unwrap() else { panic!() };
    assert_eq!(message.len(), 2000);
}

#[test]
fn a_list_of_models_is_bounded() {
    let mut acts = vec![ServerAct::Send(b"HTTP/1.1 200 OK\r\n\r\n{\"data\": [".to_vec())];
    acts.extend((0..5).map(|_| ServerAct::Send(vec![b' '; MIB])));
    let server = ScriptedServer::new(acts);
    let error = server.client().models(Wait::at_most(PATIENCE)).unwrap_err();
    let url = format!("{}/v1/models", server.url);
    assert_eq!(error, ClientError::TooLarge { url, what: "an answer", limit: 4 * MIB });
}

#[test]
fn a_head_without_an_end_is_refused() {
    let header = format!("x: {}\r\n", "y".repeat(1000));
    let mut acts = vec![ServerAct::Send(b"HTTP/1.1 200 OK\r\n".to_vec())];
    acts.extend((0..2000).map(|_| ServerAct::Send(header.clone().into_bytes())));
    acts.push(ServerAct::Stay);
    let error = ScriptedServer::new(acts).events().1.unwrap();
    assert!(matches!(error, ClientError::Connection { .. }), "{error}");
}
