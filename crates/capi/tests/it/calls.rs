//! Calls through the interface.

use super::{OPTIONS, Opened, body, call, last_error, next, ok, open};
use capi::ffi::calls::{
    gannet_call_cancel, gannet_call_fd, gannet_call_free, gannet_call_method, gannet_call_status,
};
use capi::ffi::engine::{gannet_check, gannet_close};
use capi::status::GannetStatus;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::ptr;
use std::time::{Duration, Instant};

const STORY: &str = r#"{"messages": [{"role": "user", "content": "Tell me a story."}],
    "stream": true, "ignore_eos": true}"#;

#[test]
fn a_question_gets_an_answer() {
    let engine = Opened::new();
    let question = r#"{"messages": [{"role": "user", "content": "What is 3 + 4?"}]}"#;
    let answer = body(call(engine.0, "/v1/chat/completions", question));
    assert!(answer.contains("3 + 4 = 7."), "{answer}");
    assert!(body(call(engine.0, "/v1/models", "")).contains("gannet-tiny"));
    let call = call(engine.0, "/v1/chat/completions", "{}");
    let (mut status, mut is_stream) = (0, 7);
    // SAFETY: memory for two numbers.
    ok(unsafe { gannet_call_status(call, -1, &mut status, &mut is_stream) });
    assert_eq!((status, is_stream), (400, 0));
    assert!(body(call).contains("messages"));
}

#[test]
fn a_method_is_one_of_three() {
    let engine = Opened::new();
    let with = |method: &str| {
        let (mut call, path) = (ptr::null_mut(), "/v1/responses/x");
        // SAFETY: texts with their lengths, and memory for a handle.
        let status = unsafe {
            gannet_call_method(
                engine.0,
                method.as_ptr().cast(),
                method.len(),
                path.as_ptr().cast(),
                path.len(),
                ptr::null(),
                0,
                &mut call,
            )
        };
        (status, call)
    };
    let (status, call) = with("DELETE");
    ok(status);
    assert!(body(call).contains("error"));
    assert_eq!(with("PATCH").0, GannetStatus::GANNET_INVALID);
    assert!(last_error().contains("expected GET, POST or DELETE"), "{}", last_error());
}

#[test]
fn cancelling_from_another_thread_ends_a_wait() {
    let engine = Opened::new();
    let call = call(engine.0, "/v1/chat/completions", STORY);
    assert!(next(call, 60_000).is_ok());
    let handle = call.addr();
    let reading =
        std::thread::spawn(
            move || {
                while let Ok(_event) = next(ptr::without_provenance_mut(handle), -1) {}
            },
        );
    ok(gannet_call_cancel(call));
    reading.join().unwrap();
    assert_eq!(next(call, -1), Err(GannetStatus::GANNET_END));
    ok(gannet_call_free(call));
}

#[test]
fn the_descriptor_is_readable_while_something_is_there() {
    let engine = Opened::new();
    let question = r#"{"messages": [{"role": "user", "content": "Count to ten."}],
        "temperature": 0, "stream": true}"#;
    let call = call(engine.0, "/v1/chat/completions", question);
    let mut number = -1;
    // SAFETY: memory for a number.
    ok(unsafe { gannet_call_fd(call, &mut number) });
    // SAFETY: the descriptor is open until the call is freed.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    let (mut events, mut polls) = (0, 0);
    loop {
        let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(poll(&mut polled, Some(&timeout)).unwrap(), 1, "after {events} events");
        polls += 1;
        match next(call, 0) {
            Ok(_) => events += 1,
            Err(GannetStatus::GANNET_TIMEOUT) => {}
            Err(GannetStatus::GANNET_END) => break,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(events > 3 && polls <= 2 * events + 2, "{events} events, {polls} polls");
    ok(gannet_call_free(call));
}

#[test]
fn a_timeout_is_no_end() {
    let engine = Opened::new();
    let long = STORY.replace("true, \"ignore_eos\"", "false, \"ignore_eos\"");
    let call = call(engine.0, "/v1/chat/completions", &long);
    let started = Instant::now();
    assert_eq!(next(call, 20), Err(GannetStatus::GANNET_TIMEOUT));
    let mut status = 0;
    // SAFETY: memory for a number.
    let waited = unsafe { gannet_call_status(call, 20, &mut status, ptr::null_mut()) };
    assert_eq!(waited, GannetStatus::GANNET_TIMEOUT);
    assert!(started.elapsed() < Duration::from_secs(30));
    ok(gannet_call_cancel(call));
    // SAFETY: memory for a number.
    let waited = unsafe { gannet_call_status(call, -1, &mut status, ptr::null_mut()) };
    assert_eq!(waited, GannetStatus::GANNET_END);
    ok(gannet_call_free(call));
}

#[test]
fn closing_ends_calls_and_frees_the_engine() {
    let engine = open(OPTIONS).unwrap();
    let call = call(engine, "/v1/chat/completions", STORY);
    assert!(next(call, 60_000).is_ok());
    ok(gannet_check(engine));
    ok(gannet_close(engine));
    while next(call, 60_000).is_ok() {}
    assert_eq!(next(call, -1), Err(GannetStatus::GANNET_STOPPED), "not as a whole answer ends");
    ok(gannet_call_free(call));
    assert_eq!(gannet_check(engine), GannetStatus::GANNET_HANDLE);
    assert_eq!(last_error(), "engine: the handle was freed");
}
