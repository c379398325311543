//! Tokens, prompts, embeddings and scores, in buffers of the caller.

use super::engine::GannetEngine;
use super::pointers::{Buffer, array, text, texts};
use crate::error::CapiError;
use crate::render::render;
use crate::status::GannetStatus;
use ::text::EncodeOptions;
use std::ffi::c_char;

/// Writes the tokens of a text into `tokens`. Their number goes to `needed`, unless that is null,
/// and GANNET_TOO_SMALL says that `capacity` is smaller. `add_special` is 1 to add the tokens that
/// the model puts around a text, else 0; `parse_special` is 1 to read the text of a special token
/// as that token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_tokenize(
    engine: *mut GannetEngine,
    text_utf8: *const c_char,
    text_length: usize,
    add_special: i32,
    parse_special: i32,
    tokens: *mut u32,
    capacity: usize,
    needed: *mut usize,
) -> GannetStatus {
    entry!(|entry| {
        // SAFETY: the caller passes a text.
        let text = unsafe { text("text", text_utf8, text_length) }?;
        let server = entry.engine(engine.addr())?.server()?;
        let options =
            EncodeOptions { add_special: add_special != 0, parse_special: parse_special != 0 };
        let ids = server.engine().service().tokenize(text, options);
        let ids = ids.map_err(|error| CapiError::Request(error.to_string()))?;
        // SAFETY: the caller passes a buffer with its size.
        unsafe { Buffer { name: "tokens", to: tokens, capacity, needed }.give(&ids) }
    })
}

/// Writes the text of tokens into `buffer`, without a zero after it. Its length in bytes goes to
/// `needed`, unless that is null. `skip_special` is 1 to leave out special tokens, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_detokenize(
    engine: *mut GannetEngine,
    tokens: *const u32,
    count: usize,
    skip_special: i32,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> GannetStatus {
    entry!(|entry| {
        // SAFETY: the caller passes an array.
        let tokens = unsafe { array("tokens", tokens, count) }?;
        let server = entry.engine(engine.addr())?.server()?;
        let service = server.engine().service();
        check_tokens(tokens, service.info().vocab_size)?;
        let text = service.tokenizer().decode(tokens, skip_special != 0);
        // SAFETY: the caller passes a buffer with its size.
        unsafe {
            Buffer { name: "buffer", to: buffer.cast(), capacity, needed }.give(text.as_bytes())
        }
    })
}

/// Writes the tokens that end an answer of the model into `tokens`, and their number to `needed`,
/// unless that is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_end_tokens(
    engine: *mut GannetEngine,
    tokens: *mut u32,
    capacity: usize,
    needed: *mut usize,
) -> GannetStatus {
    entry!(|entry| {
        let server = entry.engine(engine.addr())?.server()?;
        let ends = &server.engine().service().defaults.stop_ids;
        // SAFETY: the caller passes a buffer with its size.
        unsafe { Buffer { name: "tokens", to: tokens, capacity, needed }.give(ends) }
    })
}

/// Writes the prompt that the chat template makes of a conversation into `buffer`, without a zero
/// after it. `request` is the JSON of a request to "/v1/chat/completions", of which "messages" and
/// what the template reads count. The length of the prompt in bytes goes to `needed`, unless that
/// is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_render(
    engine: *mut GannetEngine,
    request: *const c_char,
    request_length: usize,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> GannetStatus {
    entry!(|entry| {
        // SAFETY: the caller passes a text.
        let request = unsafe { text("request", request, request_length) }?;
        let prompt = render(&entry.engine(engine.addr())?.server()?, request)?;
        // SAFETY: the caller passes a buffer with its size.
        unsafe {
            Buffer { name: "buffer", to: buffer.cast(), capacity, needed }.give(prompt.as_bytes())
        }
    })
}

/// Computes the embeddings of `count` texts together, and writes their vectors of length 1 into
/// `vectors`, one after another. The number of floats goes to `needed`, unless that is null: it is
/// `count` times the hidden size of gannet_describe for most models. With a null `vectors` only
/// that is computed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_embed(
    engine: *mut GannetEngine,
    count: usize,
    inputs: *const *const c_char,
    lengths: *const usize,
    vectors: *mut f32,
    capacity: usize,
    needed: *mut usize,
) -> GannetStatus {
    entry!(|entry| {
        // SAFETY: the caller passes as many texts with their lengths.
        let inputs = unsafe { texts("inputs", inputs, lengths, count) }?;
        let server = entry.engine(engine.addr())?.running()?;
        let buffer = Buffer { name: "vectors", to: vectors, capacity, needed };
        if buffer.is_empty() {
            // The width of a vector does not depend on its text.
            let width = server.engine().embed(&inputs[..count.min(1)])?.concat().len();
            // SAFETY: the caller passes memory for a value.
            return unsafe { buffer.check(width.saturating_mul(count)) };
        }
        let vectors = server.engine().embed(&inputs)?.concat();
        // SAFETY: the caller passes a buffer with its size.
        unsafe { buffer.give(&vectors) }
    })
}

/// Computes how relevant `count` documents are for a query, from 0 to 1, and writes that into
/// `scores`, which has space for as many floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_score(
    engine: *mut GannetEngine,
    query: *const c_char,
    query_length: usize,
    count: usize,
    documents: *const *const c_char,
    lengths: *const usize,
    scores: *mut f32,
    capacity: usize,
    needed: *mut usize,
) -> GannetStatus {
    entry!(|entry| {
        // SAFETY: the caller passes as many texts with their lengths.
        let (query, documents) = unsafe {
            (text("query", query, query_length)?, texts("documents", documents, lengths, count)?)
        };
        let server = entry.engine(engine.addr())?.running()?;
        let buffer = Buffer { name: "scores", to: scores, capacity, needed };
        // SAFETY: the caller passes memory for a value.
        unsafe { buffer.check(count) }?;
        let scores = server.engine().rerank(query, &documents)?;
        // SAFETY: the caller passes a buffer with its size.
        unsafe { buffer.give(&scores) }
    })
}

/// Checks that all tokens are of the vocabulary.
pub(super) fn check_tokens(tokens: &[u32], vocab: usize) -> Result<(), CapiError> {
    match tokens.iter().find(|&&token| token as usize >= vocab) {
        Some(token) => {
            let problem = format!("expected tokens below {vocab}, found {token}");
            Err(CapiError::invalid("tokens", problem))
        }
        None => Ok(()),
    }
}
