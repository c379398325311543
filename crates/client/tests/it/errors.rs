//! Errors of servers and of connections.

use crate::scripted::{KEY, PATIENCE, STREAM, ScriptedServer, query};
use client::{ClientError, RemoteServer, Wait};
use std::net::TcpListener;

/// The error of a chat, whose texts have no key.
fn failure(server: &ScriptedServer) -> ClientError {
    let error = server.events().1.expect("an error");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("0123456789"), "{shown}");
    error
}

fn check_refused(status: &str, body: &str, code: Option<&str>, message: &str) {
    let server = ScriptedServer::answering(status, "application/json", body);
    let expected = ClientError::Refused {
        url: format!("{}/v1/chat/completions", server.url),
        status: status[..3].parse().ok(),
        code: code.map(str::to_owned),
        message: message.into(),
    };
    assert_eq!(failure(&server), expected, "{status} {body}");
}

#[test]
fn errors_of_the_server_have_status_code_and_message() {
    let body = r#"{"error": {"message": "too long", "code": "context_length_exceeded"}}"#;
    check_refused("400 Bad Request", body, Some("context_length_exceeded"), "too long");
    check_refused("503 Busy", r#"{"error": {"message": "full", "code": 9}}"#, Some("9"), "full");
    check_refused("502 Bad Gateway", "<h1>oops</h1>\nmore", None, "<h1>oops</h1>");
    check_refused("404 Not Found", " \n", None, "Not Found");
    check_refused("401 Unauthorized", &format!("{KEY} is no key"), None, "[key] is no key");
}

#[test]
fn redirects_are_not_followed() {
    let elsewhere = ScriptedServer::answering("200 OK", "application/json", "{\"data\": []}");
    let server = ScriptedServer::sending(format!(
        "HTTP/1.1 307 Moved\r\nlocation: {}/{KEY}\r\ncontent-length: 0\r\n\r\n",
        elsewhere.url
    ));
    let error = failure(&server).to_string();
    assert!(error.contains("307: redirects are not followed: http://127"), "{error}");
    assert!(elsewhere.reports.try_recv().is_err());
}

#[test]
fn an_error_with_status_200_is_one_of_the_server() {
    let body = r#"{"error": {"message": "no such model", "code": "missing"}}"#;
    let server = ScriptedServer::answering("200 OK", "application/json", body);
    let expected = ClientError::Refused {
        url: format!("{}/v1/chat/completions", server.url),
        status: None,
        code: Some("missing".into()),
        message: "no such model".into(),
    };
    assert_eq!(failure(&server), expected);
}

#[test]
fn what_is_no_stream_is_named() {
    let server = ScriptedServer::answering("200 OK", "text/html; charset=utf-8", "<p>hello</p>");
    let error = failure(&server).to_string();
    assert!(error.contains("expected an answer of text/event-stream"), "{error}");
    assert!(error.contains("found text/html: <p>hello</p>"), "{error}");
}

#[test]
fn errors_of_the_connection_name_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let server = RemoteServer::new(&address.to_string(), Some(KEY)).unwrap();
    let error = server.chat(&query(), Wait::at_most(PATIENCE)).unwrap_err();
    let expected = format!("cannot reach http://{address}/v1/chat/completions: ");
    assert!(error.to_string().starts_with(&expected), "{error}");
    assert!(matches!(error, ClientError::Connection { .. }));
    assert!(!format!("{error:?}").contains("0123456789"));
}

#[test]
fn what_is_not_http_is_an_error_of_the_connection() {
    for answer in ["", "SSH-2.0-OpenSSH_9.9\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9", "\0\0\0"]
    {
        let error = failure(&ScriptedServer::sending(answer));
        assert!(matches!(error, ClientError::Connection { .. }), "{answer:?}: {error}");
    }
}

#[test]
fn errors_in_the_stream_have_no_status() {
    let event = format!(r#"data: {{"error": {{"message": "{KEY} is used up", "code": 402}}}}"#);
    let server = ScriptedServer::sending(format!("{STREAM}{event}\n\n"));
    let expected = ClientError::Refused {
        url: format!("{}/v1/chat/completions", server.url),
        status: None,
        code: Some("402".into()),
        message: "[key] is used up".into(),
    };
    assert_eq!(failure(&server), expected);
}

#[test]
fn a_malformed_event_does_not_show_the_key() {
    let server = ScriptedServer::sending(format!("{STREAM}data: {KEY}\n\n"));
    assert!(failure(&server).to_string().contains("found [key]"));
}

#[test]
fn a_key_of_several_lines_is_refused_and_not_shown() {
    let refused = RemoteServer::new("http://127.0.0.1:1", Some("sk-0123\n456789")).unwrap_err();
    let shown = format!("{refused} {refused:?}");
    assert!(shown.contains("API key") && !shown.contains("456789"), "{shown}");
}

#[test]
fn streams_and_servers_do_not_show_the_key() {
    let server = ScriptedServer::sending(STREAM);
    let stream = server.chat(Wait::at_most(PATIENCE)).unwrap();
    let shown = format!("{:?} {stream:?}", server.client());
    assert!(shown.contains("127.0.0.1") && !shown.contains("0123456789"), "{shown}");
}
