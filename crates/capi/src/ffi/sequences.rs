//! Sequences that the caller leads: tokens in, logits out.

use super::engine::GannetEngine;
use super::pointers::{Buffer, SizedStruct, array, check, give, give_struct, options, text};
use crate::entry::EntryContext;
use crate::error::CapiError;
use crate::handles;
use crate::objects::OfEngine;
use crate::sequences::{BatchItem, SamplerObject, SequenceObject, push_batch};
use crate::status::GannetStatus;
use ::calls::SequenceOptions;
use gannet::{SamplingParams, Want};
use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// A sequence of tokens, which gannet_sequence_free frees.
#[derive(Debug)]
pub struct GannetSequence {
    _private: (),
}

/// Chooses tokens from logits; gannet_sampler_free frees it.
#[derive(Debug)]
pub struct GannetSampler {
    _private: (),
}

/// Options of a sequence. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GannetSequenceOptions {
    /// The size of this struct in bytes, which the caller sets.
    pub size: usize,
    /// Maximum number of tokens; 0 for as many as the context holds.
    pub max_tokens: usize,
    /// Milliseconds without a push after which the sequence ends; 0 for ten minutes.
    pub idle_ms: u64,
    /// Sequences of a higher priority are computed first.
    pub priority: i32,
    /// 1 to apply the adapters named below, 0 to apply those of requests that name none.
    pub has_adapters: i32,
    /// A text of UTF-8: the sequence shares cached prefixes with requests and sequences of the same
    /// one; null for the common cache.
    pub cache_salt: *const c_char,
    /// Bytes of the text.
    pub cache_salt_length: usize,
    /// The numbers of the adapters.
    pub adapters: *const usize,
    /// The factor of each.
    pub adapter_scales: *const f32,
    /// Number of the adapters.
    pub adapter_count: usize,
}

// SAFETY: `repr(C)`, numbers of 8, 8, 8, 4 and 4 bytes and five of 8 without padding; any bytes are
// a pointer, which is read only where the caller set it.
unsafe impl SizedStruct for GannetSequenceOptions {
    const MIN_SIZE: usize = size_of::<usize>();
}

impl Default for GannetSequenceOptions {
    fn default() -> Self {
        Self {
            size: size_of::<Self>(),
            max_tokens: 0,
            idle_ms: 0,
            priority: 0,
            has_adapters: 0,
            cache_salt: ptr::null(),
            cache_salt_length: 0,
            adapters: ptr::null(),
            adapter_scales: ptr::null(),
            adapter_count: 0,
        }
    }
}

impl GannetSequenceOptions {
    /// The options as the library has them.
    ///
    /// # Safety
    /// The pointers that are not null point to as many values as their fields say.
    unsafe fn read(&self) -> Result<SequenceOptions, CapiError> {
        let mut read = SequenceOptions { priority: self.priority, ..Default::default() };
        read.max_tokens = Some(self.max_tokens).filter(|most| *most > 0);
        if self.idle_ms > 0 {
            read.idle = Duration::from_millis(self.idle_ms);
        }
        if !self.cache_salt.is_null() {
            // SAFETY: as promised by the caller.
            let salt = unsafe { text("cache_salt", self.cache_salt, self.cache_salt_length) }?;
            read.cache_salt = Some(salt.to_owned());
        }
        match self.has_adapters {
            0 => {}
            1 => {
                let count = self.adapter_count;
                // SAFETY: as promised by the caller.
                let (numbers, scales) = unsafe {
                    let scales = array("adapter_scales", self.adapter_scales, count)?;
                    (array("adapters", self.adapters, count)?, scales)
                };
                read.adapters = Some(numbers.iter().copied().zip(scales.iter().copied()).collect());
            }
            other => {
                let problem = format!("has_adapters: expected 0 or 1, found {other}");
                return Err(CapiError::invalid("options", problem));
            }
        }
        Ok(read)
    }
}

/// How a sampler chooses. gannet_sampler_defaults fills it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GannetSamplerOptions {
    /// The size of this struct in bytes, which the caller sets.
    pub size: usize,
    /// Divides the logits; 0 takes the most likely token.
    pub temperature: f32,
    /// Keeps the most likely tokens whose probabilities add up to this; 1 for all.
    pub top_p: f32,
    /// Drops tokens less likely than this share of the most likely one; 0 for none.
    pub min_p: f32,
    /// Keeps the locally typical tokens whose probabilities add up to this; 1 for all.
    pub typical_p: f32,
    /// Divides the positive logits of tokens seen before, and multiplies the negative; 1 is off.
    pub repeat_penalty: f32,
    /// Subtracted once from the logits of generated tokens; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted from the logits of generated tokens for each time they occur; 0 is off.
    pub frequency_penalty: f32,
    /// 1 to use `seed`, 0 to draw one.
    pub has_seed: i32,
    /// Keeps this many of the most likely tokens; 0 for all.
    pub top_k: usize,
    /// Number of last tokens that the penalties consider; 0 for all.
    pub penalty_window: usize,
    /// The seed: equal seeds and logits give equal tokens.
    pub seed: u64,
}

// SAFETY: `repr(C)`, numbers of 8, eight times 4, and three times 8 bytes without padding.
unsafe impl SizedStruct for GannetSamplerOptions {
    const MIN_SIZE: usize = size_of::<Self>();
}

/// What gannet_sequence_push gives: nothing. The tokens are computed, and stay in the cache.
pub const GANNET_WANT_NOTHING: i32 = 0;
/// The logits after the last token.
pub const GANNET_WANT_LAST: i32 = 1;
/// The logits after each token.
pub const GANNET_WANT_ALL: i32 = 2;
/// The hidden state of each token, after the last norm.
pub const GANNET_WANT_HIDDEN: i32 = 3;

/// Begins a sequence without tokens. `sequence_options` may be null. While nothing is pushed, the
/// sequence delays no other, and what was computed of it may be computed again later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_sequence_new(
    engine: *mut GannetEngine,
    sequence_options: *const GannetSequenceOptions,
    sequence: *mut *mut GannetSequence,
) -> GannetStatus {
    entry!(|entry| {
        check("sequence", sequence)?;
        // SAFETY: the caller passes a struct with its size, and what its fields point to.
        let given = unsafe { options("options", sequence_options)?.read() }?;
        let begun = SequenceObject::begin(entry.engine(engine.addr())?, given)?;
        // SAFETY: the caller passes memory for a pointer.
        unsafe { give_handle("sequence", sequence, begun) }
    })
}

/// Appends tokens to a sequence, computes them and writes their outputs as `want` says, one of
/// GANNET_WANT_NOTHING and the others, into `rows`, a row after another: of as many values as the
/// vocabulary has tokens, or as a hidden state has. The number of floats goes to `needed`, unless
/// that is null; nothing is pushed where `capacity` is smaller. If the push fails, the sequence has
/// the tokens that it had before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_sequence_push(
    sequence: *mut GannetSequence,
    tokens: *const u32,
    count: usize,
    want: i32,
    rows: *mut f32,
    capacity: usize,
    needed: *mut usize,
) -> GannetStatus {
    entry!(|entry| {
        // SAFETY: the caller passes an array.
        let tokens = unsafe { array("tokens", tokens, count) }?;
        let sequence = entry.object::<SequenceObject>(sequence.addr())?;
        let server = sequence.engine().running()?;
        let info = server.engine().info();
        let (want, values) = match want {
            GANNET_WANT_NOTHING => (Want::Nothing, 0),
            GANNET_WANT_LAST => (Want::Last, info.vocab_size),
            GANNET_WANT_ALL => (Want::All, info.vocab_size.saturating_mul(count)),
            GANNET_WANT_HIDDEN => (Want::Hidden, info.hidden_size.saturating_mul(count)),
            other => {
                let problem = format!("expected a number from 0 to 3, found {other}");
                return Err(CapiError::invalid("want", problem));
            }
        };
        drop(server);
        let buffer = Buffer { name: "rows", to: rows, capacity, needed };
        // SAFETY: the caller passes memory for a value.
        unsafe { buffer.check(values) }?;
        let values = sequence.push(tokens, want)?;
        // SAFETY: the caller passes a buffer with its size.
        unsafe { buffer.give(&values) }
    })
}

/// Makes a second sequence with the same tokens. Both share what is computed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_sequence_fork(
    sequence: *mut GannetSequence,
    copy: *mut *mut GannetSequence,
) -> GannetStatus {
    entry!(|entry| {
        check("copy", copy)?;
        let fork = entry.object::<SequenceObject>(sequence.addr())?.fork()?;
        // SAFETY: the caller passes memory for a pointer.
        unsafe { give_handle("copy", copy, fork) }
    })
}

/// Shortens a sequence to its first `length` tokens.
#[unsafe(no_mangle)]
pub extern "C" fn gannet_sequence_truncate(
    sequence: *mut GannetSequence,
    length: usize,
) -> GannetStatus {
    entry!(|entry| {
        let sequence = entry.object::<SequenceObject>(sequence.addr())?;
        sequence.lock()?.get()?.truncate(length)
    })
}

/// Writes the tokens of a sequence into `tokens`, and their number to `needed`, unless that is
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_sequence_tokens(
    sequence: *mut GannetSequence,
    tokens: *mut u32,
    capacity: usize,
    needed: *mut usize,
) -> GannetStatus {
    entry!(|entry| {
        let sequence = entry.object::<SequenceObject>(sequence.addr())?;
        let mut guard = sequence.lock()?;
        // SAFETY: the caller passes a buffer with its size.
        unsafe {
            Buffer { name: "tokens", to: tokens, capacity, needed }.give(guard.get()?.tokens())
        }
    })
}

/// Ends a sequence and frees its handle.
#[unsafe(no_mangle)]
pub extern "C" fn gannet_sequence_free(sequence: *mut GannetSequence) -> GannetStatus {
    entry!(|_entry| { handles::take::<SequenceObject>(sequence.addr()).map(drop) })
}

/// Fills options of a sampler with what the server takes where a request says nothing: the model's
/// own recommendations. The caller sets the size of the struct before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_sampler_defaults(
    engine: *mut GannetEngine,
    sampler_options: *mut GannetSamplerOptions,
) -> GannetStatus {
    entry!(|entry| {
        let server = entry.engine(engine.addr())?.server()?;
        let known = server.engine().service().defaults.params();
        // SAFETY: the caller passes a struct with its size.
        unsafe { give_struct("options", sampler_options, shown(&known)) }
    })
}

/// Makes a sampler. With null `sampler_options` it has the defaults. A sampler serves one sequence:
/// it draws a random number for each token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_sampler_new(
    engine: *mut GannetEngine,
    sampler_options: *const GannetSamplerOptions,
    sampler: *mut *mut GannetSampler,
) -> GannetStatus {
    entry!(|entry| {
        check("sampler", sampler)?;
        let engine = entry.engine(engine.addr())?;
        let params = match sampler_options.is_null() {
            true => engine.server()?.engine().service().defaults.params(),
            // SAFETY: the caller passes a struct with its size.
            false => asked(&unsafe { options("options", sampler_options) }?),
        };
        let made = Arc::new(SamplerObject::new(engine, params)?);
        // SAFETY: the caller passes memory for a pointer.
        unsafe { give_handle("sampler", sampler, made) }
    })
}

/// Frees a sampler.
#[unsafe(no_mangle)]
pub extern "C" fn gannet_sampler_free(sampler: *mut GannetSampler) -> GannetStatus {
    entry!(|_entry| { handles::take::<SamplerObject>(sampler.addr()).map(drop) })
}

/// Appends `lengths[i]` tokens at `tokens[i]` to `sequences[i]`, for `count` different sequences of
/// one engine, which share its steps. `samplers[i]` chooses `out_tokens[i]` from the logits after
/// the last token; it is not pushed. `out_logits` gets these logits, a row of as many values as the
/// vocabulary has tokens for each sequence. `out_logits` may be null, and so may `samplers` with
/// `out_tokens`. Tokens before the first that a sampler chose are the prompt of a sequence, the
/// others count as generated. If the function fails, the sequences have the tokens that they had
/// before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gannet_push_batch(
    count: usize,
    sequences: *const *mut GannetSequence,
    tokens: *const *const u32,
    lengths: *const usize,
    samplers: *const *mut GannetSampler,
    out_tokens: *mut u32,
    out_logits: *mut f32,
) -> GannetStatus {
    entry!(|entry| {
        if samplers.is_null() != out_tokens.is_null() {
            let problem = "expected samplers and out_tokens, or none of both";
            return Err(CapiError::invalid("out_tokens", problem));
        }
        for (name, place) in [("out_tokens", out_tokens.cast()), ("out_logits", out_logits)] {
            if !place.is_null() {
                check(name, place)?;
            }
        }
        // SAFETY: the caller passes arrays of `count` values.
        let items = unsafe { items(entry, count, sequences, tokens, lengths, samplers) }?;
        let results = push_batch(&items, !out_logits.is_null())?;
        for (index, result) in results.iter().enumerate() {
            if let Some(token) = result.token {
                // SAFETY: the caller passes memory for `count` tokens.
                unsafe { give("out_tokens", out_tokens.add(index), token) }?;
            }
            if !out_logits.is_null() {
                let (width, needed) = (result.logits.len(), ptr::null_mut());
                // SAFETY: the caller passes memory for `count` rows.
                let to = unsafe { out_logits.add(index * width) };
                let row = Buffer { name: "out_logits", to, capacity: width, needed };
                // SAFETY: as above.
                unsafe { row.give(&result.logits) }?;
            }
        }
        Ok(())
    })
}

/// What is pushed to each sequence.
///
/// # Safety
/// Pointers that are not null point to arrays of `count` values, and those of `tokens` to as many
/// tokens as `lengths` says.
unsafe fn items<'a>(
    entry: &EntryContext,
    count: usize,
    sequences: *const *mut GannetSequence,
    tokens: *const *const u32,
    lengths: *const usize,
    samplers: *const *mut GannetSampler,
) -> Result<Vec<BatchItem<'a>>, CapiError> {
    // SAFETY: as promised by the caller.
    let (sequences, tokens, lengths) = unsafe {
        let sequences = array("sequences", sequences, count)?;
        (sequences, array("tokens", tokens, count)?, array("lengths", lengths, count)?)
    };
    // SAFETY: as promised by the caller.
    let samplers = (!samplers.is_null()).then(|| unsafe { array("samplers", samplers, count) });
    let samplers = samplers.transpose()?;
    let mut items: Vec<BatchItem> = Vec::with_capacity(count);
    for (index, sequence) in sequences.iter().enumerate() {
        let sequence = entry.object::<SequenceObject>(sequence.addr())?;
        let sampler = samplers.map(|all| entry.object::<SamplerObject>(all[index].addr()));
        let sampler = sampler.transpose()?;
        let engine = items.first().map_or(sequence.engine(), |first| first.sequence.engine());
        let engines = [Some(sequence.engine()), sampler.as_ref().map(|it| it.engine())];
        if engines.iter().flatten().any(|other| !Arc::ptr_eq(other, engine)) {
            let problem = "expected sequences and samplers of one engine";
            return Err(CapiError::invalid("sequences", problem));
        }
        // SAFETY: as promised by the caller.
        let tokens = unsafe { array("tokens", tokens[index], lengths[index]) }?;
        items.push(BatchItem { sequence, tokens, sampler });
    }
    Ok(items)
}

/// Adds an object to the table, and gives its handle.
///
/// # Safety
/// If it is not null, `to` points to memory for a pointer.
unsafe fn give_handle<T, O: handles::HandleObject>(
    name: &'static str,
    to: *mut *mut T,
    object: Arc<O>,
) -> Result<(), CapiError> {
    let handle = handles::add(object)?;
    // SAFETY: as promised by the caller.
    unsafe { give(name, to, ptr::without_provenance_mut(handle)) }
}

/// `params` as options.
fn shown(params: &SamplingParams) -> GannetSamplerOptions {
    GannetSamplerOptions {
        size: size_of::<GannetSamplerOptions>(),
        temperature: params.temperature,
        top_p: params.top_p,
        min_p: params.min_p,
        typical_p: params.typical_p,
        repeat_penalty: params.repeat_penalty,
        presence_penalty: params.presence_penalty,
        frequency_penalty: params.frequency_penalty,
        has_seed: i32::from(params.seed.is_some()),
        top_k: params.top_k,
        penalty_window: params.penalty_window.unwrap_or(0),
        seed: params.seed.unwrap_or(0),
    }
}

/// The parameters of options.
fn asked(options: &GannetSamplerOptions) -> SamplingParams {
    SamplingParams {
        logit_bias: Vec::new(),
        repeat_penalty: options.repeat_penalty,
        presence_penalty: options.presence_penalty,
        frequency_penalty: options.frequency_penalty,
        penalty_window: Some(options.penalty_window).filter(|window| *window > 0),
        top_k: options.top_k,
        typical_p: options.typical_p,
        top_p: options.top_p,
        min_p: options.min_p,
        temperature: options.temperature,
        seed: Some(options.seed).filter(|_| options.has_seed != 0),
    }
}
