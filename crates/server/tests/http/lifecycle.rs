//! Clients that leave, stall or wait, and the end of the server.

use crate::harness::{Server, chat_body, error};
use crate::support::{Act, CONTEXT};
use futures_util::StreamExt;
use serde_json::json;
use server::{ServeError, ServerOptions};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const CHAT: &str = "/v1/chat/completions";
const TICK: Act = Act::Pause(Duration::from_millis(20));

/// One token every 20 ms.
fn slow_tokens(count: usize) -> Vec<Act> {
    std::iter::repeat_n([Act::Say("x"), TICK], count).flatten().collect()
}

#[tokio::test]
async fn leaving_a_stream_cancels_within_one_token() {
    let server = Server::start(slow_tokens(200)).await;
    let response = server.post(CHAT, &chat_body(json!({"stream": true}))).await;
    let mut bytes = response.bytes_stream();
    assert!(bytes.next().await.unwrap().unwrap().starts_with(b"data: "));
    drop(bytes);
    let (report, _server) = server.report().await;
    assert!(report.cancelled);
    assert!(report.sent <= 4, "{} tokens came of a request nobody read", report.sent);
}

#[tokio::test]
async fn leaving_during_prefill_cancels() {
    let server = Server::start([Act::Prefill(1), Act::Pause(Duration::from_secs(30))]).await;
    let response = server.post(CHAT, &chat_body(json!({"stream": true}))).await;
    drop(response);
    let (report, _server) = server.report().await;
    assert!(report.cancelled);
}

#[tokio::test]
async fn leaving_a_whole_answer_cancels_too() {
    let server = Server::start(slow_tokens(200)).await;
    let (url, client) = (server.url(CHAT), server.client.clone());
    let asking =
        tokio::spawn(async move { client.post(url).json(&chat_body(json!({}))).send().await });
    server.computes().await;
    asking.abort();
    let (report, _server) = server.report().await;
    assert!(report.cancelled);
    assert!(report.sent < 50, "{}", report.sent);
}

#[tokio::test]
async fn long_prefill_is_bridged_by_comments() {
    let options = ServerOptions { ping_interval: Duration::from_millis(20), ..Default::default() };
    let script = [Act::Pause(Duration::from_millis(200)), Act::Say("x")];
    let server = Server::start_with(script, 4, options).await;
    let response = server.post(CHAT, &chat_body(json!({"stream": true}))).await;
    let text = response.text().await.unwrap();
    let comments = text.lines().take_while(|line| *line == ": keep-alive");
    assert!(comments.count() >= 3, "{text}");
    assert!(text.split("\n\n").all(|event| event.is_empty() || event.contains("data: ")), "{text}");
    assert!(text.ends_with("data: [DONE]\n\n"));
}

/// Asks for `n` streamed answers of some hundred kilobytes each and reads nothing of them.
async fn ask_and_stall(server: &Server, n: usize) -> TcpStream {
    let large = json!({"stream": true, "n": n, "logprobs": true, "top_logprobs": 20});
    let body = chat_body(large).to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(1024).unwrap();
    let mut socket = socket.connect(server.addr).await.unwrap();
    socket.write_all((head + &body).as_bytes()).await.unwrap();
    socket
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_nobody_up() {
    let server = Server::start([Act::Forever("hello ")]).await;
    let _stalled = ask_and_stall(&server, 4).await;
    let (first, mut server) = server.report().await;
    assert!(!first.cancelled);
    for _ in 1..4 {
        let (report, same) = server.report().await;
        assert_eq!((report.cancelled, report.sent), (false, first.sent));
        server = same;
    }
    assert_eq!(server.chat(json!({})).await["usage"]["total_tokens"], CONTEXT);
}

#[tokio::test]
async fn a_client_that_never_reads_is_given_up() {
    let options = ServerOptions { stall_timeout: Duration::from_millis(50), ..Default::default() };
    let mut server = Server::start_with([Act::Forever("hello ")], 64, options).await;
    let _stalled = ask_and_stall(&server, 24).await;
    let mut cancelled = 0;
    for _ in 0..24 {
        let (report, same) = server.report().await;
        cancelled += usize::from(report.cancelled);
        server = same;
    }
    assert!(cancelled > 0);
}

#[tokio::test]
async fn shutdown_lets_running_streams_finish_and_takes_no_more() {
    let mut server = Server::start(slow_tokens(10)).await;
    let response = server.post(CHAT, &chat_body(json!({"stream": true}))).await;
    server.shut_down();
    let text = response.text().await.unwrap();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(text.matches("\"content\":\"x\"").count(), 10);
    let addr = server.addr;
    server.ended().await.unwrap();
    assert!(TcpStream::connect(addr).await.is_err());
}

#[tokio::test]
async fn requests_on_open_connections_are_refused_during_shutdown() {
    let mut server = Server::start(slow_tokens(20)).await;
    let body = chat_body(json!({})).to_string();
    let (first, rest) = body.split_at(5);
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let running = server.post(CHAT, &chat_body(json!({"stream": true}))).await;
    let mut socket = TcpStream::connect(server.addr).await.unwrap();
    server.get("/health").await;
    server.shut_down();
    server.drains().await;
    let sent = socket.write_all((head + first).as_bytes()).await;
    let sent = sent.and(socket.write_all(rest.as_bytes()).await);
    let mut answer = String::new();
    let read = socket.read_to_string(&mut answer).await;
    // The connection is closed at once, or the request is told why it comes too late.
    assert!(
        sent.is_err() || read.is_err() || answer.is_empty() || answer.contains(" 503 "),
        "{answer}"
    );
    assert!(running.text().await.unwrap().ends_with("data: [DONE]\n\n"));
    server.ended().await.unwrap();
}

#[tokio::test]
async fn grace_is_bounded() {
    let options = ServerOptions { grace: Duration::from_millis(50), ..Default::default() };
    let mut server = Server::start_with([Act::Pause(Duration::from_secs(30))], 4, options).await;
    let response = server.post(CHAT, &chat_body(json!({"stream": true}))).await;
    server.shut_down();
    let text = response.text().await.unwrap();
    assert!(text.contains("event: error\ndata: ") && text.contains("shutting down"), "{text}");
    let (report, server) = server.report().await;
    assert!(report.cancelled);
    server.ended().await.unwrap();
}

#[tokio::test]
async fn whole_answers_are_refused_when_grace_ends() {
    let options = ServerOptions { grace: Duration::from_millis(50), ..Default::default() };
    let mut server = Server::start_with([Act::Pause(Duration::from_secs(30))], 4, options).await;
    let (url, client) = (server.url(CHAT), server.client.clone());
    let asking =
        tokio::spawn(async move { client.post(url).json(&chat_body(json!({}))).send().await });
    server.computes().await;
    server.shut_down();
    error(asking.await.unwrap().unwrap(), 503).await;
    server.ended().await.unwrap();
}

#[tokio::test]
async fn a_dead_engine_ends_the_server_with_an_error() {
    let server = Server::start([Act::Say("a"), Act::Die]).await;
    let response = server.post(CHAT, &chat_body(json!({"stream": true}))).await;
    let text = response.text().await.unwrap();
    assert!(text.contains("the engine has stopped"), "{text}");
    assert!(matches!(server.ended().await, Err(ServeError::EngineStopped)));
}

#[tokio::test]
async fn streams_of_a_dead_engine_say_all_it_said() {
    let mut script = vec![Act::Say("a"); 200];
    script.push(Act::Die);
    let server = Server::start(script).await;
    let response = server.post(CHAT, &chat_body(json!({"stream": true}))).await;
    let text = response.text().await.unwrap();
    assert_eq!(text.matches(r#""content":"a""#).count(), 200, "{text}");
    assert!(text.contains("the engine has stopped"), "{text}");
}
