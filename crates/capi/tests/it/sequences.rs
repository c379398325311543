//! Sequences that the caller leads.

use super::{OPTIONS, Opened, body, call, last_error, ok, open};
use capi::ffi::arrays::gannet_tokenize;
use capi::ffi::engine::{GannetEngine, GannetModelInfo, gannet_close, gannet_describe};
use capi::ffi::sequences::*;
use capi::status::GannetStatus;
use gannet::{Engine, Want};
use std::ptr;

/// The same model, without the interface.
fn engine() -> Engine {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
    Engine::builder().threads(1).load(path).unwrap()
}

/// Values of a row of logits of the built-in model, and of a hidden state.
const VOCAB: usize = 2048;
const HIDDEN: usize = 256;

fn tokens(engine: *mut GannetEngine, text: &str) -> Vec<u32> {
    let (mut ids, mut needed) = (vec![0; 256], 0);
    let at = text.as_ptr().cast();
    // SAFETY: a text and a buffer with their sizes.
    ok(unsafe {
        gannet_tokenize(engine, at, text.len(), 1, 0, ids.as_mut_ptr(), 256, &mut needed)
    });
    ids.truncate(needed);
    ids
}

fn begin(engine: *mut GannetEngine) -> *mut GannetSequence {
    let mut sequence = ptr::null_mut();
    // SAFETY: memory for a handle.
    ok(unsafe { gannet_sequence_new(engine, ptr::null(), &mut sequence) });
    sequence
}

/// Pushes tokens, and returns the rows.
fn push(
    sequence: *mut GannetSequence,
    ids: &[u32],
    want: i32,
    capacity: usize,
) -> Result<Vec<f32>, GannetStatus> {
    let (mut rows, mut needed) = (vec![0f32; capacity], 0);
    let to = rows.as_mut_ptr();
    // SAFETY: an array and a buffer with their sizes.
    let status = unsafe {
        gannet_sequence_push(sequence, ids.as_ptr(), ids.len(), want, to, capacity, &mut needed)
    };
    rows.truncate(needed);
    if status == GannetStatus::GANNET_OK { Ok(rows) } else { Err(status) }
}

/// The tokens of a sequence.
fn held(sequence: *mut GannetSequence) -> Vec<u32> {
    let (mut ids, mut needed) = (vec![0; 256], 0);
    // SAFETY: a buffer with its size.
    ok(unsafe { gannet_sequence_tokens(sequence, ids.as_mut_ptr(), 256, &mut needed) });
    ids.truncate(needed);
    ids
}

fn sampler(
    engine: *mut GannetEngine,
    set: impl Fn(&mut GannetSamplerOptions),
) -> *mut GannetSampler {
    let size = size_of::<GannetSamplerOptions>();
    let mut options = GannetSamplerOptions { size, ..Default::default() };
    let mut sampler = ptr::null_mut();
    // SAFETY: a struct with its size, and memory for a handle.
    unsafe {
        ok(gannet_sampler_defaults(engine, &mut options));
        set(&mut options);
        ok(gannet_sampler_new(engine, &options, &mut sampler));
    }
    sampler
}

/// Pushes to several sequences, with a sampler each.
fn push_batch(
    sequences: &[*mut GannetSequence],
    ids: &[Vec<u32>],
    samplers: Option<&[*mut GannetSampler]>,
    logits: &mut [f32],
) -> Result<Vec<u32>, GannetStatus> {
    let pointers: Vec<_> = ids.iter().map(|ids| ids.as_ptr()).collect();
    let lengths: Vec<_> = ids.iter().map(Vec::len).collect();
    let mut chosen = vec![0; ids.len()];
    let (samplers, to) = match samplers {
        Some(samplers) => (samplers.as_ptr(), chosen.as_mut_ptr()),
        None => (ptr::null(), ptr::null_mut()),
    };
    let logits = if logits.is_empty() { ptr::null_mut() } else { logits.as_mut_ptr() };
    // SAFETY: arrays of as many values, and memory for a row of each.
    let status = unsafe {
        let (pointers, lengths) = (pointers.as_ptr(), lengths.as_ptr());
        gannet_push_batch(ids.len(), sequences.as_ptr(), pointers, lengths, samplers, to, logits)
    };
    if status == GannetStatus::GANNET_OK { Ok(chosen) } else { Err(status) }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn c_and_rust_give_the_same_bits() {
    let opened = Opened::new();
    let ids = tokens(opened.0, "The capital of France is Paris. What is it?");
    let rust = engine();
    let expected = rust.logits(&ids[..]).unwrap();
    let mut led = rust.lead(Default::default());
    let sequence = begin(opened.0);
    // In three pushes, as no request is.
    let parts = [&ids[..3], &ids[3..4], &ids[4..]];
    let rows: Vec<f32> = parts
        .iter()
        .flat_map(|part| push(sequence, part, GANNET_WANT_ALL, VOCAB * part.len()).unwrap())
        .collect();
    assert_eq!(bits(&rows), bits(&expected.concat()));
    let hidden = push(sequence, &ids[..2], GANNET_WANT_HIDDEN, 2 * HIDDEN).unwrap();
    led.push(&ids, Want::Nothing).unwrap();
    let expected = led.push(&ids[..2], Want::Hidden).unwrap().into_values();
    assert_eq!(bits(&hidden), bits(&expected));
    assert_eq!(held(sequence), [&ids[..], &ids[..2]].concat());
    ok(gannet_sequence_free(sequence));
}

/// The tokens that a request with a seed gets over the server's routes.
fn answer(engine: *mut GannetEngine, prompt: &[u32], seed: u64, count: usize) -> Vec<u32> {
    let request = format!(
        r#"{{"prompt": {prompt:?}, "seed": {seed}, "n_predict": {count}, "temperature": 0.9,
            "top_k": 50, "repeat_penalty": 1.1, "return_tokens": true, "ignore_eos": true}}"#
    );
    let answer = body(call(engine, "/completion", &request));
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let ids = answer["tokens"].as_array().unwrap_or_else(|| panic!("{answer}"));
    ids.iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn a_batch_with_samplers_gives_the_tokens_of_requests() {
    let opened = Opened::new();
    let prompts = ["The capital of France is", "Tell me a story.", "3 + 4 =", "Hello"];
    let prompts = prompts.map(|text| tokens(opened.0, text));
    let expected: Vec<_> =
        prompts.iter().zip(7..).map(|(prompt, seed)| answer(opened.0, prompt, seed, 9)).collect();
    let sequences: Vec<_> = prompts.iter().map(|_| begin(opened.0)).collect();
    let samplers: Vec<_> = (7..11)
        .map(|seed| {
            sampler(opened.0, |options| {
                (options.temperature, options.top_k, options.repeat_penalty) = (0.9, 50, 1.1);
                (options.has_seed, options.seed) = (1, seed);
            })
        })
        .collect();
    let mut next = prompts.to_vec();
    let mut found = vec![Vec::new(); prompts.len()];
    let mut logits = vec![0f32; VOCAB * prompts.len()];
    for _ in 0..9 {
        let chosen = push_batch(&sequences, &next, Some(&samplers), &mut logits).unwrap();
        found.iter_mut().zip(&chosen).for_each(|(all, token)| all.push(*token));
        next = chosen.iter().map(|token| vec![*token]).collect();
    }
    assert_eq!(found, expected);
    // The logits of a batch are those of a sequence alone.
    let alone = engine();
    for (index, prompt) in prompts.iter().enumerate() {
        let all = [&prompt[..], &found[index][..8]].concat();
        let rows = alone.logits(&all[..]).unwrap();
        let row = &logits[VOCAB * index..VOCAB * (index + 1)];
        assert_eq!(bits(row), bits(rows.last().unwrap()), "sequence {index}");
    }
    sequences.into_iter().for_each(|sequence| ok(gannet_sequence_free(sequence)));
    samplers.into_iter().for_each(|sampler| ok(gannet_sampler_free(sampler)));
}

#[test]
fn forks_and_shorter_sequences_have_the_bits_of_new_ones() {
    let opened = Opened::new();
    let ids = tokens(opened.0, "Once upon a time there was a cat. It was small and it liked fish.");
    let first = begin(opened.0);
    push(first, &ids, GANNET_WANT_NOTHING, 0).unwrap();
    let mut second = ptr::null_mut();
    // SAFETY: memory for a handle.
    ok(unsafe { gannet_sequence_fork(first, &mut second) });
    ok(gannet_sequence_truncate(second, 5));
    let rows = [first, second].map(|it| push(it, &[9], GANNET_WANT_LAST, VOCAB).unwrap());
    let expected = |ids: &[u32]| engine().logits(&[ids, &[9]].concat()[..]).unwrap().pop().unwrap();
    assert_eq!(bits(&rows[0]), bits(&expected(&ids)));
    assert_eq!(bits(&rows[1]), bits(&expected(&ids[..5])));
    assert_eq!(held(second), [&ids[..5], &[9]].concat());
    assert_eq!(gannet_sequence_truncate(second, 99), GannetStatus::GANNET_INVALID);
    [first, second].into_iter().for_each(|it| ok(gannet_sequence_free(it)));
}

#[test]
fn a_push_that_fails_leaves_sequences_as_they_were() {
    let opened = Opened::new();
    let (first, second) = (begin(opened.0), begin(opened.0));
    push(first, &[5, 6], GANNET_WANT_NOTHING, 0).unwrap();
    assert_eq!(push(first, &[7], GANNET_WANT_LAST, VOCAB - 1), Err(GannetStatus::GANNET_TOO_SMALL));
    assert_eq!(
        push(first, &[VOCAB as u32], GANNET_WANT_NOTHING, 0),
        Err(GannetStatus::GANNET_INVALID)
    );
    assert_eq!(push(first, &[], GANNET_WANT_NOTHING, 0), Err(GannetStatus::GANNET_INVALID));
    assert_eq!(push(first, &[7], 4, 0), Err(GannetStatus::GANNET_INVALID));
    assert_eq!(last_error(), "want: expected a number from 0 to 3, found 4");
    // The second of a batch is refused, after the first was started.
    let batch = |ids: &[Vec<u32>]| push_batch(&[first, second], ids, None, &mut []);
    assert_eq!(batch(&[vec![8], vec![u32::MAX]]), Err(GannetStatus::GANNET_INVALID));
    assert_eq!((held(first), held(second)), (vec![5, 6], vec![]));
    batch(&[vec![8], vec![9]]).unwrap();
    assert_eq!((held(first), held(second)), (vec![5, 6, 8], vec![9]));
    let twice = push_batch(&[first, first], &[vec![1], vec![2]], None, &mut []);
    assert_eq!(twice, Err(GannetStatus::GANNET_INVALID));
    assert_eq!(last_error(), "sequences: expected different ones, found one twice");
    [first, second].into_iter().for_each(|it| ok(gannet_sequence_free(it)));
    assert_eq!(batch(&[vec![8], vec![9]]), Err(GannetStatus::GANNET_HANDLE));
}

#[test]
fn a_sequence_ends_with_its_engine() {
    let engine = open(OPTIONS).unwrap();
    let sequence = begin(engine);
    push(sequence, &[5], GANNET_WANT_NOTHING, 0).unwrap();
    ok(gannet_close(engine));
    assert_eq!(push(sequence, &[5], GANNET_WANT_NOTHING, 0), Err(GannetStatus::GANNET_STOPPED));
    ok(gannet_sequence_free(sequence));
    let other = Opened::new();
    let mixed = [begin(other.0), begin(Opened::new().0)];
    let status = push_batch(&mixed, &[vec![1], vec![2]], None, &mut []);
    assert_eq!(status, Err(GannetStatus::GANNET_INVALID));
    mixed.into_iter().for_each(|it| ok(gannet_sequence_free(it)));
}

#[test]
fn options_out_of_range_are_named() {
    let opened = Opened::new();
    let size = size_of::<GannetSamplerOptions>();
    let mut sampler = ptr::null_mut();
    let make = |options: &GannetSamplerOptions, sampler: &mut _| {
        // SAFETY: a struct with its size, and memory for a handle.
        unsafe { gannet_sampler_new(opened.0, options, sampler) }
    };
    let mut options =
        GannetSamplerOptions { size, top_p: 1.0, typical_p: 1.0, ..Default::default() };
    options.repeat_penalty = 1.0;
    ok(make(&options, &mut sampler));
    ok(gannet_sampler_free(sampler));
    options.temperature = f32::NAN;
    assert_eq!(make(&options, &mut sampler), GannetStatus::GANNET_INVALID);
    assert!(last_error().contains("temperature"), "{}", last_error());
    options.size = 8;
    assert_eq!(make(&options, &mut sampler), GannetStatus::GANNET_INVALID);
    let mut sequence = ptr::null_mut();
    let limits = GannetSequenceOptions { max_tokens: 2, ..Default::default() };
    // SAFETY: a struct with its size, and memory for a handle.
    ok(unsafe { gannet_sequence_new(opened.0, &limits, &mut sequence) });
    assert_eq!(
        push(sequence, &[1, 2, 3], GANNET_WANT_NOTHING, 0),
        Err(GannetStatus::GANNET_INVALID)
    );
    assert_eq!(last_error(), "tokens: a sequence of 3 tokens exceeds its limit of 2");
    ok(gannet_sequence_free(sequence));
}

/// The eight most likely tokens one after another.
fn greedy(
    engine: *mut GannetEngine,
    options: &GannetSequenceOptions,
    prompt: &[u32],
    vocab: usize,
) -> Vec<u32> {
    let mut sequence = ptr::null_mut();
    // SAFETY: a struct with its size and what its fields point to, and memory for a handle.
    ok(unsafe { gannet_sequence_new(engine, options, &mut sequence) });
    let (mut chosen, mut next) = (Vec::new(), prompt.to_vec());
    for _ in 0..8 {
        let row = push(sequence, &next, GANNET_WANT_LAST, vocab).unwrap();
        let most = (0..vocab).rev().max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        chosen.push(most as u32);
        next = vec![most as u32];
    }
    ok(gannet_sequence_free(sequence));
    chosen
}

#[test]
fn a_sequence_has_the_adapters_that_a_request_has() {
    let Some(adapter) = fixtures::find("lora/llama3_r4") else { return };
    let base = fixtures::find("models/llama3").unwrap();
    let options = serde_json::json!({"model": base, "lora": [adapter], "threads": 1});
    let opened = Opened(open(&options.to_string()).unwrap());
    let mut info = GannetModelInfo { size: size_of::<GannetModelInfo>(), ..Default::default() };
    // SAFETY: a struct with its size.
    ok(unsafe { gannet_describe(opened.0, &mut info) });
    let prompt = tokens(opened.0, "plementation for built-in type");
    let requested = |members: &str| {
        let greedy = r#""temperature": 0, "repeat_penalty": 1, "ignore_eos": true"#;
        let members = format!(r#"{greedy}, "n_predict": 8{members}"#);
        let request = format!(r#"{{"prompt": {prompt:?}, "return_tokens": true, {members}}}"#);
        let answer: serde_json::Value =
            serde_json::from_str(&body(call(opened.0, "/completion", &request))).unwrap();
        serde_json::from_value::<Vec<u32>>(answer["tokens"].clone()).unwrap()
    };
    let led = |options: &GannetSequenceOptions| greedy(opened.0, options, &prompt, info.vocab_size);
    let mut options = GannetSequenceOptions::default();
    assert_eq!(led(&options), requested(""));
    options.has_adapters = 1;
    let bare = led(&options);
    assert_eq!(bare, requested(r#", "lora": []"#));
    let (number, scale, salt) = (0, 2.0, "mine");
    options = GannetSequenceOptions { adapters: &number, adapter_scales: &scale, ..options };
    options =
        GannetSequenceOptions { adapter_count: 1, cache_salt: salt.as_ptr().cast(), ..options };
    options.cache_salt_length = salt.len();
    let adapted = led(&options);
    assert_eq!(adapted, requested(r#", "lora": [{"id": 0, "scale": 2.0}]"#));
    assert_ne!(adapted, bare);

    let refused = |options: &GannetSequenceOptions| {
        let mut sequence = ptr::null_mut();
        // SAFETY: a struct with its size and what its fields point to, and memory for a handle.
        let status = unsafe { gannet_sequence_new(opened.0, options, &mut sequence) };
        assert_eq!(status, GannetStatus::GANNET_INVALID);
        last_error()
    };
    let other = 7;
    let unknown = GannetSequenceOptions { adapters: &other, ..options };
    assert_eq!(refused(&unknown), "adapters: no such adapter: 7");
    let scales = GannetSequenceOptions { adapter_scales: ptr::null(), ..options };
    assert_eq!(refused(&scales), "adapter_scales: expected a pointer, found null");
    let salt = GannetSequenceOptions { cache_salt: b"\xff".as_ptr().cast(), ..options };
    assert!(refused(&salt).starts_with("cache_salt: expected UTF-8"), "{}", last_error());
    let flag = GannetSequenceOptions { has_adapters: 2, ..options };
    assert_eq!(refused(&flag), "options: has_adapters: expected 0 or 1, found 2");
}
