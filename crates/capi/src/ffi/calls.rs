//! Calls of the server's routes.

use super::engine::GannetEngine;
use super::pointers::{SizedStruct, array, check, give, give_if_asked, give_struct, text};
use crate::entry::EntryContext;
use crate::error::CapiError;
use crate::handles;
use crate::objects::{CallObject, ChunkObject};
use crate::status::GannetStatus;
use std::ffi::c_char;
use std::sync::Arc;
use std::time::Duration;

/// A call of a route, which gannet_call_free frees.
#[derive(Debug)]
pub struct GannetCallHandle {
    _private: (),
}

/// Bytes that the library has allocated, which gannet_chunk_free frees.
#[derive(Debug)]
pub struct GannetBytes {
    _private: (),
}

/// A piece of the body of a response.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GannetChunk {
    /// The size of this struct in bytes, which the caller sets.
    pub size: usize,
    /// What gannet_chunk_free frees.
    pub owner: *mut GannetBytes,
    /// The bytes, with a zero after them.
    pub data: *const c_char,
    /// Number of bytes, without the zero.
    pub length: usize,
}

// SAFETY: `repr(C)`, and pointers take as many bytes as `usize`; any bytes are a pointer.
unsafe impl SizedStruct for GannetChunk {
    const MIN_SIZE: usize = size_of::<Self>();
}

impl Default for GannetChunk {
    fn default() -> Self {
        let (owner, data) = (std::ptr::null_mut(), std::ptr::null());
        Self { size: size_of::<Self>(), owner, data, length: 0 }
    }
}

/// Calls a route of the server, such as "/v1/chat/completions": with POST and a body of JSON, or
/// with GET where `body` is null. Returns at once; gannet_call_next waits for the response. Errors
/// of a request are a response as well, with the status and the body that HTTP has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_call(
    engine: *mut GannetEngine,
    path: *const c_char,
    path_length: usize,
    body: *const c_char,
    body_length: usize,
    call: *mut *mut GannetCallHandle,
) -> GannetStatus {
    entry!(|entry| {
        let method = if body.is_null() { "GET" } else { "POST" };
        // SAFETY: the caller passes texts, and memory for a pointer.
        unsafe {
            let path = text("path", path, path_length)?;
            start(entry, engine, method, path, array("body", body.cast(), body_length)?, call)
        }
    })
}

/// The same with another method than these: "GET", "POST" or "DELETE".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_call_method(
    engine: *mut GannetEngine,
    method: *const c_char,
    method_length: usize,
    path: *const c_char,
    path_length: usize,
    body: *const c_char,
    body_length: usize,
    call: *mut *mut GannetCallHandle,
) -> GannetStatus {
    entry!(|entry| {
        // SAFETY: the caller passes texts, and memory for a pointer.
        unsafe {
            let method = text("method", method, method_length)?;
            let path = text("path", path, path_length)?;
            start(entry, engine, method, path, array("body", body.cast(), body_length)?, call)
        }
    })
}

/// Starts a call.
///
/// # Safety
/// If it is not null, `call` points to memory for a pointer.
unsafe fn start(
    entry: &EntryContext,
    engine: *mut GannetEngine,
    method: &str,
    path: &str,
    body: &[u8],
    call: *mut *mut GannetCallHandle,
) -> Result<(), CapiError> {
    check("call", call)?;
    let engine = entry.engine(engine.addr())?;
    let started = engine.server()?.call(method, path, body.to_vec())?;
    let handle = handles::add(Arc::new(CallObject::new(engine, started)))?;
    // SAFETY: as promised by the caller.
    unsafe { give("call", call, std::ptr::without_provenance_mut(handle)) }
}

/// Waits for the next chunk of the body, at most `timeout_ms`, or without a limit where that is
/// negative: the whole body, or the data of one event of a stream. GANNET_END says that the body
/// is complete or was cancelled, GANNET_STOPPED that the engine ended before, GANNET_TIMEOUT that
/// nothing came. The caller sets the size of the struct before, and frees the chunk with
/// gannet_chunk_free. Threads may wait for the same call; each chunk goes to one of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_call_next(
    call: *mut GannetCallHandle,
    timeout_ms: i64,
    chunk: *mut GannetChunk,
) -> GannetStatus {
    entry!(|entry| {
        // SAFETY: the caller passes a struct with its size.
        unsafe { give_struct("chunk", chunk, GannetChunk::default()) }?;
        let call = entry.object::<CallObject>(call.addr())?;
        let bytes = ChunkObject::new(call.next(timeout(timeout_ms))?);
        let (data, length) = (bytes.bytes().as_ptr().cast(), bytes.bytes().len());
        // The bytes stay where they are when their owner moves into the table.
        let owner = std::ptr::without_provenance_mut(handles::add(Arc::new(bytes))?);
        let value = GannetChunk { owner, data, length, ..GannetChunk::default() };
        // SAFETY: the caller passes a struct with its size.
        unsafe { give_struct("chunk", chunk, value) }
    })
}

/// Frees the bytes of a chunk, and empties the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_chunk_free(chunk: *mut GannetChunk) -> GannetStatus {
    entry!(|_entry| {
        // SAFETY: the caller passes a struct with its size.
        let owner = unsafe { super::pointers::options("chunk", chunk) }?.owner;
        handles::take::<ChunkObject>(owner.addr())?;
        // SAFETY: the caller passes a struct with its size.
        unsafe { give_struct("chunk", chunk, GannetChunk::default()) }
    })
}

/// Waits for the status of the response, such as 200, at most `timeout_ms`, or without a limit
/// where that is negative. Whether the body is a stream, with a chunk for each event, goes to
/// `is_stream` as 0 or 1, unless that is null. GANNET_END says that the call was cancelled before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_call_status(
    call: *mut GannetCallHandle,
    timeout_ms: i64,
    status: *mut i32,
    is_stream: *mut i32,
) -> GannetStatus {
    entry!(|entry| {
        check("status", status)?;
        let call = &entry.object::<CallObject>(call.addr())?.call;
        let known = call.wait_status(timeout(timeout_ms));
        let known = known.ok_or_else(|| match call.has_ended() {
            true => CapiError::Ended,
            false => CapiError::TimedOut,
        })?;
        // SAFETY: the caller passes memory for values.
        unsafe {
            give("status", status, i32::from(known))?;
            give_if_asked("is_stream", is_stream, i32::from(call.is_stream()))
        }
    })
}

/// Gives a descriptor that is readable while gannet_call_next need not wait, for poll and its kin;
/// at times it is readable for nothing. It is the library's, and valid until gannet_call_free: the
/// caller neither reads nor closes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_call_fd(
    call: *mut GannetCallHandle,
    descriptor: *mut i32,
) -> GannetStatus {
    entry!(|entry| {
        check("descriptor", descriptor)?;
        let number = entry.object::<CallObject>(call.addr())?.fd()?;
        // SAFETY: the caller passes memory for a value.
        unsafe { give("descriptor", descriptor, number) }
    })
}

/// Cancels a call, from any thread: its sequence ends within a step, and gannet_call_next gives
/// GANNET_END from now on. The handle stays.
#[unsafe(no_mangle)]
pub extern "C" fn gannet_call_cancel(call: *mut GannetCallHandle) -> GannetStatus {
    entry!(|entry| {
        entry.object::<CallObject>(call.addr())?.call.cancel();
        Ok(())
    })
}

/// Cancels a call that has not ended, and frees its handle. Threads that wait for it get
/// GANNET_END.
#[unsafe(no_mangle)]
pub extern "C" fn gannet_call_free(call: *mut GannetCallHandle) -> GannetStatus {
    entry!(|_entry| {
        handles::take::<CallObject>(call.addr())?.call.cancel();
        Ok(())
    })
}

/// A time in milliseconds; none where it is negative.
fn timeout(milliseconds: i64) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}
