//! Silent servers, slow servers, and callers that cancel.

use crate::scripted::{PATIENCE, STREAM, ScriptedServer, ServerAct, drain};
use client::{ChatEvent, ClientError, Wait};
use std::cell::Cell;
use std::time::{Duration, Instant};

const TEXT: &str = "data: {\"choices\": [{\"delta\": {\"content\": \"a\"}}]}\n\n";
const END: &str = "data: {\"choices\": [{\"finish_reason\": \"stop\"}]}\n\n";

fn send(text: &str) -> ServerAct {
    ServerAct::Send(text.as_bytes().to_vec())
}

/// A wait that only its caller ends.
fn cancelled_by<'a>(cancelled: &'a dyn Fn() -> bool) -> Wait<'a> {
    Wait { idle: PATIENCE, cancelled }
}

#[test]
fn a_server_that_stays_silent_is_given_up() {
    for acts in [
        vec![ServerAct::Stay],
        vec![send("HTTP/1.1 200"), ServerAct::Stay],
        vec![send(STREAM), ServerAct::Stay],
    ] {
        let server = ScriptedServer::new(acts);
        let (wait, begin) = (Wait::at_most(Duration::from_millis(150)), Instant::now());
        let error = match server.chat(wait) {
            Ok(stream) => drain(stream, wait).1.unwrap(),
            Err(error) => error,
        };
        let url = format!("{}/v1/chat/completions", server.url);
        assert_eq!(error, ClientError::Idle { url, idle: wait.idle });
        assert!((wait.idle..PATIENCE / 2).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        // The connection is closed at the error.
        server.report().unwrap();
        assert_eq!(server.report().as_deref(), Ok("closed"));
    }
}

#[test]
fn a_slow_server_is_not_idle() {
    let pause = ServerAct::Pause(Duration::from_millis(100));
    let mut acts = vec![send(STREAM)];
    for _ in 0..8 {
        acts.extend([send(": keep-alive\n\n"), pause.clone()]);
    }
    acts.extend([send(TEXT), pause, send(END)]);
    let server = ScriptedServer::new(acts);
    let (wait, begin) = (Wait::at_most(Duration::from_millis(600)), Instant::now());
    let (events, error) = drain(server.chat(wait).unwrap(), wait);
    let expected = [ChatEvent::Content("a".into()), ChatEvent::Finish("stop".into())];
    assert_eq!((events.as_slice(), error), (expected.as_slice(), None));
    // Longer than the server may be silent, and comments are signs of life.
    assert!(begin.elapsed() > wait.idle, "{:?}", begin.elapsed());
}

#[test]
fn a_caller_cancels_at_any_time() {
    for acts in [
        vec![ServerAct::Stay],
        vec![send(STREAM), ServerAct::Stay],
        vec![send(STREAM), send(TEXT), ServerAct::Stay],
    ] {
        let server = ScriptedServer::new(acts);
        let begin = Instant::now();
        let cancelled = || begin.elapsed() > Duration::from_millis(200);
        let wait = cancelled_by(&cancelled);
        let error = match server.chat(wait) {
            Ok(stream) => drain(stream, wait).1.unwrap(),
            Err(error) => error,
        };
        assert_eq!(error, ClientError::Cancelled);
        assert!(begin.elapsed() < PATIENCE / 2, "{:?}", begin.elapsed());
        server.report().unwrap();
        assert_eq!(server.report().as_deref(), Ok("closed"));
    }
}

#[test]
fn a_call_that_is_cancelled_before_it_begins_connects_to_nothing() {
    let server = ScriptedServer::sending(STREAM);
    let asked = Cell::new(0);
    let cancelled = || {
        asked.set(asked.get() + 1);
        true
    };
    assert_eq!(server.chat(cancelled_by(&cancelled)).unwrap_err(), ClientError::Cancelled);
    assert_eq!(asked.get(), 1);
    assert!(server.reports.recv_timeout(Duration::from_millis(200)).is_err());
}

#[test]
fn to_drop_a_stream_closes_its_connection() {
    let server = ScriptedServer::new(vec![send(STREAM), send(TEXT), ServerAct::Stay]);
    let mut stream = server.chat(Wait::at_most(PATIENCE)).unwrap();
    let event = stream.next(Wait::at_most(PATIENCE)).unwrap();
    assert_eq!(event, Some(ChatEvent::Content("a".into())));
    server.report().unwrap();
    assert!(server.reports.recv_timeout(Duration::from_millis(200)).is_err());
    drop(stream);
    assert_eq!(server.report().as_deref(), Ok("closed"));
}

#[test]
fn the_longest_wait_is_no_overflow() {
    let server = ScriptedServer::sending(format!("{STREAM}{END}"));
    let wait = Wait::at_most(Duration::MAX);
    assert_eq!(drain(server.chat(wait).unwrap(), wait).1, None);
}
