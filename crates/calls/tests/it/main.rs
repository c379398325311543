//! Calls in process over the built-in model.

mod over_http;
mod running;

use calls::{Call, LocalServer, NextChunk, OpenOptions};
use std::time::Duration;

/// Longest time of what ends by itself.
const SOON: Duration = Duration::from_secs(60);

/// A server of the built-in model.
fn server() -> LocalServer {
    let options = br#"{"model": "builtin", "threads": 1, "kv_memory": "64MiB"}"#;
    LocalServer::open(&OpenOptions::from_json(options).unwrap()).unwrap()
}

/// Calls the chat route with `members` beside the question.
fn chat(server: &LocalServer, question: &str, members: &str) -> Call {
    let messages = format!(r#"[{{"role": "user", "content": "{question}"}}]"#);
    let body = format!(r#"{{"messages": {messages}, "temperature": 0{members}}}"#);
    server.call("POST", "/v1/chat/completions", body.into_bytes()).unwrap()
}

/// All chunks of a call.
fn chunks(call: &Call) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        match call.next(Some(SOON)) {
            NextChunk::Chunk(chunk) => all.push(chunk),
            NextChunk::End => return all,
            other => panic!("{other:?} after {} chunks", all.len()),
        }
    }
}

/// Waits until no request runs or waits.
fn wait_idle(server: &LocalServer) {
    let start = std::time::Instant::now();
    loop {
        let stats = server.engine().service().engine.metrics.snapshot();
        if stats.running + stats.waiting == 0 {
            return;
        }
        assert!(start.elapsed() < SOON, "{} requests still run", stats.running);
        std::thread::sleep(Duration::from_millis(2));
    }
}
