//! The C interface, called from Rust and from C programs.
#![allow(unsafe_code, reason = "the interface takes pointers")]

mod arrays;
mod calls;
mod handles;
mod header;
mod programs;
mod sequences;

use capi::ffi::calls::{GannetCallHandle, GannetChunk, gannet_call, gannet_call_next};
use capi::ffi::calls::{gannet_call_free, gannet_chunk_free};
use capi::ffi::engine::{GannetEngine, gannet_close, gannet_open};
use capi::ffi::texts::gannet_last_error;
use capi::status::{GANNET_API_VERSION, GannetStatus};
use std::ffi::CStr;
use std::ptr;

/// What all tests open.
const OPTIONS: &str = r#"{"model": "builtin", "threads": 1, "kv_memory": "64MiB"}"#;

/// The text of the last error.
fn last_error() -> String {
    // SAFETY: the text ends with a zero, and stays until the next error of this thread.
    unsafe { CStr::from_ptr(gannet_last_error()) }.to_str().unwrap().to_owned()
}

fn open(options: &str) -> Result<*mut GannetEngine, (GannetStatus, String)> {
    let mut engine = ptr::null_mut();
    // SAFETY: a text with its length, and memory for a handle.
    let status = unsafe {
        gannet_open(GANNET_API_VERSION, options.as_ptr().cast(), options.len(), &mut engine)
    };
    if status == GannetStatus::GANNET_OK { Ok(engine) } else { Err((status, last_error())) }
}

/// An engine of the built-in model that is closed at the end.
struct Opened(*mut GannetEngine);

impl Opened {
    fn new() -> Self {
        Self(open(OPTIONS).unwrap())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        gannet_close(self.0);
    }
}

fn ok(status: GannetStatus) {
    assert_eq!(status, GannetStatus::GANNET_OK, "{}", last_error());
}

/// Starts a call.
fn call(engine: *mut GannetEngine, path: &str, body: &str) -> *mut GannetCallHandle {
    let mut call = ptr::null_mut();
    let body_at = if body.is_empty() { ptr::null() } else { body.as_ptr().cast() };
    // SAFETY: texts with their lengths, and memory for a handle.
    ok(unsafe {
        gannet_call(engine, path.as_ptr().cast(), path.len(), body_at, body.len(), &mut call)
    });
    call
}

/// The next chunk, if one comes in time.
fn next(call: *mut GannetCallHandle, timeout_ms: i64) -> Result<Vec<u8>, GannetStatus> {
    let mut chunk = GannetChunk::default();
    // SAFETY: a struct with its size; the bytes are the chunk's until it is freed.
    unsafe {
        match gannet_call_next(call, timeout_ms, &mut chunk) {
            GannetStatus::GANNET_OK => {}
            other => return Err(other),
        }
        let bytes = std::slice::from_raw_parts(chunk.data.cast::<u8>(), chunk.length + 1);
        assert_eq!(bytes[chunk.length], 0, "a zero after the bytes");
        let bytes = bytes[..chunk.length].to_vec();
        ok(gannet_chunk_free(&mut chunk));
        Ok(bytes)
    }
}

/// The body of the response of a call, which is freed.
fn body(call: *mut GannetCallHandle) -> String {
    let mut body = Vec::new();
    loop {
        match next(call, 60_000) {
            Ok(chunk) => body.extend(chunk),
            Err(GannetStatus::GANNET_END) => break,
            Err(other) => panic!("{other:?}: {}", last_error()),
        }
    }
    ok(gannet_call_free(call));
    String::from_utf8(body).unwrap()
}
