//! Requests that browsers send for other sites, names that are not this machine's, and clients
//! that send nothing more.

use crate::harness::{Server, chat_body, listener, ok, raw};
use crate::support::Act;
use serde_json::json;
use server::{ApiKeys, Listener, ServerOptions, UnixSocket};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

const CHAT: &str = "/v1/chat/completions";
/// The head of a request that would make the model compute; the body never comes.
const POST: &str = "POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 9\r\n";

async fn server(options: ServerOptions) -> Server {
    Server::start_with([Act::Say("x")], 4, options).await
}

/// Sends the lines of a head, and returns the status of the answer and the code of its error.
async fn answer(server: &Server, lines: &str) -> (u16, String) {
    let socket = TcpStream::connect(server.addr).await.unwrap();
    read_answer(raw(socket, &format!("{lines}connection: close\r\n\r\n")).await)
}

fn read_answer(answer: String) -> (u16, String) {
    let status = answer.get(9..12).and_then(|status| status.parse().ok());
    let code = answer.split_once("\"code\":\"").and_then(|(_, rest)| rest.split_once('"'));
    let status = status.unwrap_or_else(|| panic!("{answer:?}"));
    (status, code.map(|(code, _)| code.to_owned()).unwrap_or_default())
}

async fn check(server: &Server, lines: &str, status: u16, code: &str) {
    assert_eq!(answer(server, lines).await, (status, code.to_owned()), "{lines}");
}

#[tokio::test]
async fn pages_of_other_sites_are_refused_before_their_bodies_are_read() {
    let server = server(ServerOptions::default()).await;
    let own = format!("host: {}\r\n", server.addr);
    for page in [
        "origin: http://evil.example\r\n",
        "origin: http://127.0.0.1:1\r\n",
        "origin: null\r\n",
        "origin: http://evil.example\r\nsec-fetch-site: cross-site\r\ncontent-type: text/plain\r\n",
        "sec-fetch-site: cross-site\r\n",
        "sec-fetch-site: same-site\r\n",
    ] {
        for route in [
            "POST /v1/chat/completions",
            "POST /models/unload",
            "POST /slots/0?action=erase",
            "POST /v1/messages",
            "POST /api/chat",
            "DELETE /v1/responses/x",
            "POST /nowhere",
        ] {
            let lines = format!("{route} HTTP/1.1\r\ncontent-length: 9\r\n{own}{page}");
            let (status, code) = answer(&server, &lines).await;
            assert_eq!(status, 403, "{lines}");
            // Some protocols have no place for a code.
            assert!(["origin_not_allowed", ""].contains(&&*code), "{lines}");
        }
        // What is safe changes nothing, and its answer is the browser's to keep.
        check(&server, &format!("GET /v1/models HTTP/1.1\r\n{own}{page}"), 200, "").await;
    }
    assert!(server.no_report());
}

#[tokio::test]
async fn own_and_allowed_pages_and_other_programs_may_post() {
    let cors_origin = Some("https://app.example".to_owned());
    let server = server(ServerOptions { cors_origin, ..Default::default() }).await;
    let own = format!("http://{}", server.addr);
    for origin in [Some(own.as_str()), Some("https://app.example"), None] {
        let request = server.client.post(server.url(CHAT)).json(&chat_body(json!({})));
        let request = origin.iter().fold(request, |request, page| request.header("origin", *page));
        ok(request.send().await.unwrap()).await;
    }
}

#[tokio::test]
async fn names_that_are_not_this_machines_are_refused_on_every_route() {
    let allowed_hosts = vec!["chat.example".to_owned()];
    let server = server(ServerOptions { allowed_hosts, ..Default::default() }).await;
    for route in ["GET /", "GET /v1/models", "GET /health", "GET /openapi.json", "GET /metrics"] {
        let lines = |host: &str| format!("{route} HTTP/1.1\r\nhost: {host}\r\n");
        for host in ["localhost", "a.localhost:1", "[::1]:8080", "10.0.0.1", "Chat.Example."] {
            check(&server, &lines(host), 200, "").await;
        }
        let (status, _) = answer(&server, &lines("evil.example")).await;
        assert_eq!(status, 403, "{route}");
    }
    let target = "GET http://evil.example/v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n";
    check(&server, target, 403, "host_not_allowed").await;
}

#[tokio::test]
async fn a_request_names_its_host_once() {
    let server = server(ServerOptions::default()).await;
    check(&server, "GET /health HTTP/1.1\r\n", 400, "invalid_host").await;
    check(&server, "GET /health HTTP/1.1\r\nhost: a\r\nhost: a\r\n", 400, "invalid_host").await;
    check(&server, "GET /health HTTP/1.1\r\nhost: a b\r\n", 400, "invalid_host").await;
    check(&server, "GET /health HTTP/1.0\r\n", 200, "").await;
}

#[tokio::test]
async fn with_keys_neither_names_nor_pages_matter() {
    let keys = ApiKeys::new(["secret"]).unwrap();
    let server = server(ServerOptions { keys, ..Default::default() }).await;
    let lines = "GET /v1/models HTTP/1.1\r\nhost: evil.example\r\nauthorization: Bearer secret\r\n";
    check(&server, lines, 200, "").await;
    check(&server, &format!("{POST}host: a.b\r\norigin: http://c.d\r\n"), 401, "invalid_api_key")
        .await;
}

#[tokio::test]
async fn only_servers_that_others_cannot_reach_check_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sock");
    let unix = UnixSocket::bind(&path, 0o600).unwrap();
    let both = Listener { unix: Some(unix), ..listener().into() };
    let server = Server::start_on(both, [Act::Say("x")], 4, ServerOptions::default()).await;
    let lines = "GET /v1/models HTTP/1.1\r\nhost: evil.example\r\n";
    check(&server, lines, 403, "host_not_allowed").await;
    let socket = UnixStream::connect(&path).await.unwrap();
    let found = read_answer(raw(socket, &format!("{lines}connection: close\r\n\r\n")).await);
    assert_eq!(found.0, 200);
    let everywhere = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let mut server =
        Server::start_on(everywhere.into(), [Act::Say("x")], 4, ServerOptions::default()).await;
    server.addr.set_ip([127, 0, 0, 1].into());
    check(&server, lines, 200, "").await;
    check(
        &server,
        &format!("{POST}host: a.b\r\norigin: http://c.d\r\n"),
        403,
        "origin_not_allowed",
    )
    .await;
}

/// Sends a chat request, and nothing more.
async fn ask_and_end(server: &Server, extra: serde_json::Value) -> TcpStream {
    let body = chat_body(extra).to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut socket = TcpStream::connect(server.addr).await.unwrap();
    socket.write_all((head + &body).as_bytes()).await.unwrap();
    socket.shutdown().await.unwrap();
    socket
}

#[tokio::test]
async fn a_client_that_sends_nothing_more_is_answered() {
    for stream in [false, true] {
        let script = [Act::Pause(Duration::from_millis(600)), Act::Say("hello")];
        let server = Server::start(script).await;
        let mut socket = ask_and_end(&server, json!({"stream": stream})).await;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("hello"), "{answer}");
    }
}

#[tokio::test]
async fn a_client_that_has_closed_both_sides_is_given_up() {
    for stream in [false, true] {
        let server = Server::start([Act::Say("x"), Act::Pause(Duration::from_secs(30))]).await;
        let socket = ask_and_end(&server, json!({"stream": stream})).await;
        if !stream {
            server.computes().await;
        }
        drop(socket);
        let (report, _server) = server.report().await;
        assert!(report.cancelled, "{stream}");
    }
}
