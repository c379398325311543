//! Arrays in buffers of the caller.

use super::{Opened, last_error, ok};
use capi::ffi::arrays::*;
use capi::status::GannetStatus;
use gannet::Engine;
use std::ptr;

/// The same model, without the interface.
fn engine() -> Engine {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
    Engine::builder().threads(1).load(path).unwrap()
}

#[test]
fn tokens_become_text_again_and_sizes_are_returned() {
    let opened = Opened::new();
    let text = "Hello world, grüße!";
    let (at, mut needed, mut ids) = (text.as_ptr().cast(), 0, [0u32; 64]);
    // SAFETY: texts and buffers with their sizes.
    unsafe {
        let tokenize = |to, capacity, needed: &mut usize| {
            gannet_tokenize(opened.0, at, text.len(), 0, 0, to, capacity, needed)
        };
        let status = tokenize(ptr::null_mut(), 0, &mut needed);
        assert_eq!(status, GannetStatus::GANNET_TOO_SMALL);
        assert!(last_error().starts_with("tokens: expected space for"), "{}", last_error());
        let count = needed;
        assert_eq!(
            tokenize(ids.as_mut_ptr(), count - 1, &mut needed),
            GannetStatus::GANNET_TOO_SMALL
        );
        assert_eq!(ids[0], 0, "nothing is written that does not fit");
        ok(tokenize(ids.as_mut_ptr(), count, &mut needed));
        let expected = engine().service().tokenize(text, Default::default()).unwrap();
        assert_eq!((needed, &ids[..count]), (count, &expected[..]));
        let mut bytes = [0u8; 64];
        let to = bytes.as_mut_ptr().cast();
        ok(gannet_detokenize(opened.0, ids.as_ptr(), count, 1, to, 64, &mut needed));
        assert_eq!(str::from_utf8(&bytes[..needed]).unwrap(), text);
        let mut ends = [0u32; 8];
        ok(gannet_end_tokens(opened.0, ends.as_mut_ptr(), 8, &mut needed));
        assert!((1..8).contains(&needed));
    }
}

#[test]
fn a_prompt_is_rendered_as_over_http() {
    let opened = Opened::new();
    let render = |request: &str| {
        let (mut bytes, mut needed) = (vec![0u8; 4096], 0);
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: a text and a buffer with their sizes.
        let status = unsafe {
            gannet_render(opened.0, request.as_ptr().cast(), request.len(), to, 4096, &mut needed)
        };
        bytes.truncate(needed);
        (status, String::from_utf8(bytes).unwrap())
    };
    let (status, prompt) = render(r#"{"messages": [{"role": "user", "content": "Hello!"}]}"#);
    ok(status);
    assert!(prompt.contains("Hello!") && prompt.len() > 10, "{prompt}");
    assert_eq!(render("{}").0, GannetStatus::GANNET_REQUEST);
    assert!(last_error().contains("messages"), "{}", last_error());
}

#[test]
fn embeddings_have_the_bits_of_the_library() {
    let opened = Opened::new();
    let inputs = ["The cat sleeps.", "3 + 4 = 7."];
    let pointers = inputs.map(|text| text.as_ptr().cast());
    let lengths = inputs.map(str::len);
    let expected = engine().embed(&inputs).unwrap().concat();
    let (mut needed, mut vectors) = (0, vec![0f32; expected.len()]);
    // SAFETY: texts and buffers with their sizes.
    unsafe {
        let embed = |to, capacity, needed: &mut usize| {
            gannet_embed(opened.0, 2, pointers.as_ptr(), lengths.as_ptr(), to, capacity, needed)
        };
        assert_eq!(embed(ptr::null_mut(), 0, &mut needed), GannetStatus::GANNET_TOO_SMALL);
        assert_eq!(needed, expected.len());
        ok(embed(vectors.as_mut_ptr(), needed, &mut needed));
    }
    let bits = |values: &[f32]| values.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&vectors), bits(&expected));
}

#[test]
fn a_model_without_a_head_scores_nothing() {
    let opened = Opened::new();
    let (text, lengths, mut scores) = ("a".as_ptr().cast(), [1], [0f32]);
    let (to, nowhere) = (scores.as_mut_ptr(), ptr::null_mut());
    // SAFETY: texts and buffers with their sizes.
    let status =
        unsafe { gannet_score(opened.0, text, 1, 1, &text, lengths.as_ptr(), to, 1, nowhere) };
    assert_eq!(status, GannetStatus::GANNET_REQUEST, "{}", last_error());
}
