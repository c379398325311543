//! Hostile arguments: handles that are none, lengths that no memory has, texts that are not UTF-8.

use super::{Opened, call, last_error, ok, open};
use capi::ffi::arrays::{gannet_detokenize, gannet_embed, gannet_tokenize};
use capi::ffi::calls::*;
use capi::ffi::engine::*;
use capi::ffi::sequences::*;
use capi::ffi::texts::{gannet_api_version, gannet_version};
use capi::status::{GANNET_API_VERSION, GannetStatus};
use std::ffi::CStr;
use std::ptr;

/// Every function that takes a handle, with this one and else good arguments.
fn all_with(handle: usize) -> Vec<GannetStatus> {
    let engine = ptr::without_provenance_mut::<GannetEngine>(handle);
    let call = ptr::without_provenance_mut::<GannetCallHandle>(handle);
    let owner = ptr::without_provenance_mut(handle);
    let sequence = ptr::without_provenance_mut::<GannetSequence>(handle);
    let sampler = ptr::without_provenance_mut::<GannetSampler>(handle);
    let (mut begun, mut made) = (ptr::null_mut(), ptr::null_mut());
    let size = size_of::<GannetSamplerOptions>();
    let mut sampling = GannetSamplerOptions { size, ..Default::default() };
    let path = "/v1/models";
    let (mut started, mut number, mut ids) = (ptr::null_mut(), 0, [0u32; 8]);
    let (mut vectors, text, lengths) = ([0f32; 8], path.as_ptr().cast(), [path.len()]);
    let mut info = GannetModelInfo { size: size_of::<GannetModelInfo>(), ..Default::default() };
    let mut chunk = GannetChunk::default();
    let mut owned = GannetChunk { owner, ..chunk };
    let nowhere: *mut usize = ptr::null_mut();
    // SAFETY: all arguments but the handle have memory.
    unsafe {
        vec![
            gannet_check(engine),
            gannet_describe(engine, &mut info),
            gannet_model_text(engine, 0, nowhere.cast(), 0, nowhere),
            gannet_call(engine, text, path.len(), ptr::null(), 0, &mut started),
            gannet_tokenize(engine, text, path.len(), 0, 0, ids.as_mut_ptr(), 8, nowhere),
            gannet_detokenize(engine, ids.as_ptr(), 1, 0, nowhere.cast(), 0, nowhere),
            gannet_embed(engine, 1, &text, lengths.as_ptr(), vectors.as_mut_ptr(), 8, nowhere),
            gannet_call_next(call, 0, &mut chunk),
            gannet_call_status(call, 0, &mut number, ptr::null_mut()),
            gannet_call_fd(call, &mut number),
            gannet_call_cancel(call),
            gannet_call_free(call),
            gannet_chunk_free(&mut owned),
            gannet_sequence_new(engine, ptr::null(), &mut begun),
            gannet_sequence_push(sequence, ids.as_ptr(), 1, 0, nowhere.cast(), 0, nowhere),
            gannet_sequence_fork(sequence, &mut begun),
            gannet_sequence_truncate(sequence, 0),
            gannet_sequence_tokens(sequence, nowhere.cast(), 0, nowhere),
            gannet_sequence_free(sequence),
            gannet_sampler_defaults(engine, &mut sampling),
            gannet_sampler_new(engine, ptr::null(), &mut made),
            gannet_sampler_free(sampler),
            push_one(sequence, sampler),
            gannet_close(engine),
        ]
    }
}

/// Pushes a token in a batch of one.
fn push_one(sequence: *mut GannetSequence, sampler: *mut GannetSampler) -> GannetStatus {
    let (token, length, mut chosen) = (1, 1, 0);
    let ids = &raw const token;
    // SAFETY: arrays of one value.
    unsafe {
        gannet_push_batch(1, &sequence, &ids, &length, &sampler, &mut chosen, ptr::null_mut())
    }
}

#[test]
fn a_freed_handle_is_an_error() {
    let engine = Opened::new();
    let started = call(engine.0, "/v1/models", "");
    ok(gannet_call_free(started));
    let freed = started.addr();
    let other = engine.0.addr();
    let foreign = Box::into_raw(Box::new([0u64; 8]));
    for (handle, what) in [
        (0, "null"),
        (freed, "freed call"),
        (foreign.addr(), "address"),
        (usize::MAX, "number"),
        (other ^ (1 << 33), "later generation"),
    ] {
        for (index, status) in all_with(handle).into_iter().enumerate() {
            assert_eq!(status, GannetStatus::GANNET_HANDLE, "{what}: function {index}");
        }
    }
    // SAFETY: the box from above.
    drop(unsafe { Box::from_raw(foreign) });
    ok(gannet_check(engine.0));
    let closed = open(super::OPTIONS).unwrap();
    ok(gannet_close(closed));
    assert!(all_with(closed.addr()).iter().all(|it| *it == GannetStatus::GANNET_HANDLE));
    assert_eq!(last_error(), "engine: the handle was freed");
}

#[test]
fn lengths_that_no_memory_has_are_refused_before_they_are_read() {
    let engine = Opened::new();
    let text = c"abc".as_ptr();
    let (mut ids, mut needed, mut vectors) = ([0u32; 4], 0, [0f32; 4]);
    for length in [usize::MAX, isize::MAX as usize + 1, (1 << 30) + 1, usize::MAX / 4 + 2] {
        let (mut started, lengths) = (ptr::null_mut(), [length]);
        // SAFETY: lengths like these are refused.
        let statuses = unsafe {
            [
                gannet_tokenize(engine.0, text, length, 0, 0, ids.as_mut_ptr(), 4, &mut needed),
                gannet_call(engine.0, text, length, ptr::null(), 0, &mut started),
                gannet_call(engine.0, text, 3, text, length, &mut started),
                gannet_detokenize(
                    engine.0,
                    ids.as_ptr(),
                    length,
                    0,
                    ptr::null_mut(),
                    0,
                    &mut needed,
                ),
                gannet_embed(
                    engine.0,
                    1,
                    &text,
                    lengths.as_ptr(),
                    vectors.as_mut_ptr(),
                    4,
                    &mut needed,
                ),
                gannet_embed(
                    engine.0,
                    length,
                    &text,
                    lengths.as_ptr(),
                    vectors.as_mut_ptr(),
                    4,
                    &mut needed,
                ),
                gannet_open(GANNET_API_VERSION, text, length, &mut ptr::null_mut()),
            ]
        };
        assert_eq!(statuses, [GannetStatus::GANNET_INVALID; 7], "{length}");
        assert!(last_error().contains("expected a length of at most"), "{}", last_error());
    }
}

#[test]
fn what_is_no_text_and_no_place_is_refused() {
    let engine = Opened::new();
    let (mut ids, mut started) = ([0u32; 4], ptr::null_mut());
    let broken = [b'a', 0xff, b'b'];
    let nowhere: *mut usize = ptr::null_mut();
    let mut bytes = [0u8; 64];
    let odd = bytes.as_mut_ptr().wrapping_add(1);
    // SAFETY: null pointers and odd addresses are refused.
    unsafe {
        let tokenize = |text, length, to, capacity| {
            gannet_tokenize(engine.0, text, length, 0, 0, to, capacity, nowhere)
        };
        let status = tokenize(broken.as_ptr().cast(), 3, ids.as_mut_ptr(), 4);
        assert_eq!(status, GannetStatus::GANNET_INVALID);
        assert_eq!(last_error(), "text: expected UTF-8, found other bytes from byte 1");
        assert_eq!(tokenize(ptr::null(), 3, ids.as_mut_ptr(), 4), GannetStatus::GANNET_INVALID);
        assert_eq!(last_error(), "text: expected a pointer, found null");
        let status = tokenize(c"abc".as_ptr(), 3, odd.cast(), 4);
        assert_eq!(status, GannetStatus::GANNET_INVALID);
        assert_eq!(tokenize(ptr::null(), 0, ptr::null_mut(), 0), GannetStatus::GANNET_OK);
        let status = gannet_call(engine.0, c"/x".as_ptr(), 2, ptr::null(), 0, nowhere.cast());
        assert_eq!(status, GannetStatus::GANNET_INVALID);
        let status = gannet_call(engine.0, c"x".as_ptr(), 1, ptr::null(), 0, &mut started);
        assert_eq!(status, GannetStatus::GANNET_INVALID);
        let mut info = GannetModelInfo::default();
        assert_eq!(gannet_describe(engine.0, &mut info), GannetStatus::GANNET_INVALID);
        assert_eq!(last_error(), "info: expected its size in its first field, found 0");
        let status =
            gannet_detokenize(engine.0, [u32::MAX].as_ptr(), 1, 0, nowhere.cast(), 0, nowhere);
        assert_eq!(status, GannetStatus::GANNET_INVALID);
    }
    assert!(last_error().starts_with("tokens: expected tokens below"), "{}", last_error());
}

#[test]
fn a_struct_is_filled_as_far_as_the_caller_knows_it() {
    let engine = Opened::new();
    let known = size_of::<usize>() * 3;
    let mut info = GannetModelInfo { size: known, cache_tokens: 77, ..Default::default() };
    // SAFETY: a struct with a size within it.
    ok(unsafe { gannet_describe(engine.0, &mut info) });
    assert!(info.vocab_size > 100 && info.context_length > 100);
    assert_eq!((info.size, info.cache_tokens), (known, 77));
}

#[test]
fn a_wrong_option_or_version_is_named() {
    let (status, message) = open(r#"{"thread": 1}"#).unwrap_err();
    assert_eq!(status, GannetStatus::GANNET_INVALID);
    assert_eq!(message, "unknown option \"thread\"; did you mean \"threads\"?");
    let (status, message) = open(r#"{"model": "/no/such/model"}"#).unwrap_err();
    assert_eq!(status, GannetStatus::GANNET_MODEL);
    assert_eq!(message, "/no/such/model: no such file or folder");
    let mut engine = ptr::null_mut();
    // SAFETY: an empty text, and memory for a handle.
    let status = unsafe { gannet_open(GANNET_API_VERSION + 1, ptr::null(), 0, &mut engine) };
    assert_eq!((status, engine.is_null()), (GannetStatus::GANNET_VERSION, true));
    assert_eq!(gannet_api_version(), GANNET_API_VERSION);
    // SAFETY: the text ends with a zero.
    let version = unsafe { CStr::from_ptr(gannet_version()) };
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}
