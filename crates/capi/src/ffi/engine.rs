//! Opening, describing and closing a model.

use super::pointers::{Buffer, SizedStruct, check, give, give_struct, text};
use crate::error::CapiError;
use crate::handles;
use crate::objects::EngineObject;
use crate::status::{GANNET_API_VERSION, GannetStatus};
use ::calls::{LocalServer, OpenOptions};
use std::ffi::c_char;
use std::sync::Arc;

/// A loaded model. Not an address: only functions of the library can use it.
#[derive(Debug)]
pub struct GannetEngine {
    _private: (),
}

/// What gannet_describe tells of a model.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GannetModelInfo {
    /// The size of this struct in bytes, which the caller sets.
    pub size: usize,
    /// Number of tokens of the vocabulary, and of logits.
    pub vocab_size: usize,
    /// Maximum number of tokens of a prompt and its answer together.
    pub context_length: usize,
    /// Number of tokens that the cache holds for all sequences together.
    pub cache_tokens: usize,
    /// Number of values of an embedding.
    pub hidden_size: usize,
    /// Maximum number of sequences that are computed at a time.
    pub parallel: usize,
    /// Number of compute threads.
    pub threads: usize,
    /// Bytes of memory of the weights.
    pub weight_bytes: usize,
    /// Bytes of memory of the cache.
    pub cache_bytes: usize,
}

// SAFETY: `repr(C)`, and all fields are `usize`.
unsafe impl SizedStruct for GannetModelInfo {
    const MIN_SIZE: usize = size_of::<usize>();
}

/// A name of a model for gannet_model_text: its name.
pub const GANNET_MODEL_NAME: i32 = 0;
/// The name of the family of its architecture, such as "qwen3".
pub const GANNET_MODEL_ARCHITECTURE: i32 = 1;
/// The name of its arithmetic: engines of equal names compute equal bits.
pub const GANNET_MODEL_ARITHMETIC: i32 = 2;

/// Loads a model, which may take long. `api_version` is GANNET_API_VERSION of the header that the
/// program is compiled with. `options` is a JSON object whose keys are the program's flags with
/// underscores, such as {"model": "model.gguf", "threads": 4}; an empty text stands for {}.
/// gannet_close frees the engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_open(
    api_version: u32,
    options: *const c_char,
    options_length: usize,
    engine: *mut *mut GannetEngine,
) -> GannetStatus {
    entry!(|_entry| {
        if api_version != GANNET_API_VERSION {
            let (expected, found) = (GANNET_API_VERSION, api_version);
            return Err(CapiError::Version { expected, found });
        }
        check("engine", engine)?;
        // SAFETY: the caller passes a text.
        let json = unsafe { text("options", options, options_length) }?;
        let json = if json.is_empty() { "{}" } else { json };
        let server = LocalServer::open(&OpenOptions::from_json(json.as_bytes())?)?;
        let handle = handles::add(Arc::new(EngineObject::new(server)))?;
        // SAFETY: the caller passes memory for a pointer.
        unsafe { give("engine", engine, std::ptr::without_provenance_mut(handle)) }
    })
}

/// Ends an engine with all its calls and sequences, and waits until its memory is free, at most a
/// minute: GANNET_IN_USE says that another thread still used it after that. The handle is freed in
/// any case.
#[unsafe(no_mangle)]
pub extern "C" fn gannet_close(engine: *mut GannetEngine) -> GannetStatus {
    entry!(|_entry| { handles::take::<EngineObject>(engine.addr())?.close() })
}

/// Returns GANNET_OK if the engine computes, and GANNET_STOPPED if it has ended.
#[unsafe(no_mangle)]
pub extern "C" fn gannet_check(engine: *mut GannetEngine) -> GannetStatus {
    entry!(|entry| { entry.engine(engine.addr())?.running().map(drop) })
}

/// Describes the model. The caller sets the size of the struct before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_describe(
    engine: *mut GannetEngine,
    info: *mut GannetModelInfo,
) -> GannetStatus {
    entry!(|entry| {
        let server = entry.engine(engine.addr())?.server()?;
        let engine = server.engine();
        let (known, memory) = (engine.info(), engine.memory());
        let value = GannetModelInfo {
            size: size_of::<GannetModelInfo>(),
            vocab_size: known.vocab_size,
            context_length: known.context_length,
            cache_tokens: known.cache_tokens,
            hidden_size: known.hidden_size,
            parallel: engine.service().parallel,
            threads: engine.threads(),
            weight_bytes: memory.weights,
            cache_bytes: memory.cache,
        };
        // SAFETY: the caller passes a struct with its size.
        unsafe { give_struct("info", info, value) }
    })
}

/// Writes a text about the model, one of GANNET_MODEL_NAME and the others, into `buffer`. Its
/// length in bytes goes to `needed`, unless that is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_model_text(
    engine: *mut GannetEngine,
    which: i32,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> GannetStatus {
    entry!(|entry| {
        let server = entry.engine(engine.addr())?.server()?;
        let info = server.engine().info();
        let text = match which {
            GANNET_MODEL_NAME => &info.name,
            GANNET_MODEL_ARCHITECTURE => &info.architecture,
            GANNET_MODEL_ARITHMETIC => &info.arithmetic,
            other => {
                let problem = format!("expected 0, 1 or 2, found {other}");
                return Err(CapiError::invalid("which", problem));
            }
        };
        let buffer = Buffer { name: "buffer", to: buffer.cast(), capacity, needed };
        // SAFETY: the caller passes a buffer with its size.
        unsafe { buffer.give(text.as_bytes()) }
    })
}
