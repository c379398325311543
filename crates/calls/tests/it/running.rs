//! Calls while they run: streams, cancelling, slow readers, the end of a server.

use super::{SOON, chat, chunks, server, wait_idle};
use calls::{CallError, NextChunk};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[test]
fn an_answer_is_one_chunk_and_a_stream_one_for_each_event() {
    let server = server();
    let call = chat(&server, "What is the capital of France?", "");
    assert_eq!(call.wait_status(Some(SOON)), Some(200));
    assert!(!call.is_stream());
    let [whole] = &chunks(&call)[..] else { panic!("expected one chunk") };
    let whole: Value = serde_json::from_slice(whole).unwrap();
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(text, "The capital of France is Paris.");
    let call = chat(&server, "What is the capital of France?", r#", "stream": true"#);
    let events = chunks(&call);
    assert!(call.is_stream() && events.len() > 3, "{} events", events.len());
    let content = |event: &Vec<u8>| {
        let event: Value = serde_json::from_slice(event).unwrap();
        event["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(events.iter().map(content).collect::<String>(), text);
    assert_eq!(call.next(None), NextChunk::End);
}

#[test]
fn an_error_of_a_request_is_its_response() {
    let server = server();
    let call = chat(&server, "Hello", r#", "max_tokens": -5"#);
    let message = String::from_utf8(chunks(&call).concat()).unwrap();
    assert_eq!(call.status(), Some(400));
    assert!(message.contains("max_tokens"), "{message}");
    let call = server.call("GET", "/nowhere", Vec::new()).unwrap();
    assert_eq!(call.wait_status(Some(SOON)), Some(404));
    let refused =
        |method: &str, path: &str| server.call(method, path, Vec::new()).unwrap_err().to_string();
    let error = refused("PUT", "/v1/models");
    assert_eq!(error, "method: expected GET, POST or DELETE, found \"PUT\"");
    for path in ["", "v1/models", "http://host/v1/models", "/a b", "/\u{0}"] {
        assert!(refused("GET", path).starts_with("path: expected"), "{path}");
    }
}

#[test]
fn a_cancelled_call_ends_its_sequence() {
    let server = server();
    let endless = r#", "stream": true, "ignore_eos": true"#;
    let call = chat(&server, "Tell me a story.", endless);
    assert!(matches!(call.next(Some(SOON)), NextChunk::Chunk(_)));
    call.cancel();
    assert_eq!(call.next(Some(SOON)), NextChunk::End);
    wait_idle(&server);
    drop(chat(&server, "Tell me a story.", endless));
    wait_idle(&server);
}

#[test]
fn a_slow_reader_slows_its_own_sequence_only() {
    let server = server();
    let slow = chat(&server, "Tell me a story.", r#", "stream": true, "ignore_eos": true"#);
    assert_eq!(slow.wait_status(Some(SOON)), Some(200));
    let tokens = || server.engine().service().engine.metrics.snapshot().generation_tokens;
    let mut before = tokens();
    let start = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = tokens();
        if now == before {
            break;
        }
        assert!(start.elapsed() < SOON, "{now} tokens and nobody reads");
        before = now;
    }
    let answer = chunks(&chat(&server, "What is 3 + 4?", ""));
    assert!(String::from_utf8_lossy(&answer[0]).contains("3 + 4 = 7."));
    assert!(matches!(slow.next(Some(SOON)), NextChunk::Chunk(_)));
}

#[test]
fn a_listener_hears_of_every_chunk() {
    let server = server();
    let call = Arc::new(chat(&server, "Count to ten.", r#", "stream": true"#));
    let (sender, receiver) = std::sync::mpsc::channel();
    let heard = Arc::new(AtomicUsize::new(0));
    let (count, reader) = (Arc::clone(&heard), Arc::downgrade(&call));
    call.on_ready(Box::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
        let Some(call) = reader.upgrade() else { return };
        loop {
            match call.next(Some(Duration::ZERO)) {
                NextChunk::Chunk(chunk) => drop(sender.send(Some(chunk))),
                NextChunk::End => break drop(sender.send(None)),
                NextChunk::TimedOut | NextChunk::Stopped => break,
            }
        }
    }));
    let mut events = 0;
    while receiver.recv_timeout(SOON).unwrap().is_some() {
        events += 1;
    }
    assert!(events > 3 && heard.load(Ordering::Relaxed) >= 3);
}

#[test]
fn nothing_waits_longer_than_asked() {
    let server = server();
    let call = chat(&server, "Tell me a story.", r#", "ignore_eos": true"#);
    let start = Instant::now();
    assert_eq!(call.next(Some(Duration::from_millis(50))), NextChunk::TimedOut);
    assert_eq!(call.wait_status(Some(Duration::from_millis(50))), None);
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn two_threads_get_two_answers() {
    let server = server();
    let ask = |question: &'static str| {
        let server = server.clone();
        std::thread::spawn(move || chunks(&chat(&server, question, "")).concat())
    };
    let threads = [ask("What is 3 + 4?"), ask("What is the capital of France?")];
    let answers = threads.map(|it| String::from_utf8(it.join().unwrap()).unwrap());
    assert!(answers[0].contains("3 + 4 = 7.") && answers[1].contains("Paris"), "{answers:?}");
}

#[test]
fn a_closed_server_ends_its_calls_and_its_engine() {
    let server = server();
    let endless = r#", "stream": true, "ignore_eos": true"#;
    let call = chat(&server, "Tell me a story.", endless);
    assert!(server.is_alive());
    let reading = std::thread::spawn(move || {
        // A body of which nothing is read is not complete.
        while !call.has_ended() {
            std::thread::yield_now();
        }
        loop {
            match call.next(None) {
                NextChunk::Chunk(_) => {}
                last => return last,
            }
        }
    });
    let (other, last) = (server.clone(), server.clone());
    let engine = server.engine().service().engine.metrics.clone();
    let closing = std::thread::spawn(move || server.close(SOON));
    assert_eq!(reading.join().unwrap(), NextChunk::Stopped, "not an end as of a whole answer");
    while other.is_alive() {
        std::thread::yield_now();
    }
    assert!(matches!(other.call("GET", "/health", Vec::new()), Err(CallError::Stopped)));
    drop(other);
    assert!(!last.close(Duration::ZERO), "another handle of the server closes it");
    assert!(closing.join().unwrap());
    assert_eq!(engine.snapshot().running, 0);
}
