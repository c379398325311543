//! Incremental decoding gives what decoding everything at once gives.

use crate::common::data;
use proptest::prelude::*;
use std::sync::LazyLock;
use text::{EncodeOptions, IncrementalDecoder, Tokenizer};

static TOKENIZERS: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
    let load = |name: &&str| Tokenizer::from_folder(&data(name)).unwrap();
    ["llama3", "mistral", "qwen3"].iter().map(load).collect()
});

fn pieces(tokenizer: &Tokenizer, ids: &[u32], skip: bool) -> Vec<String> {
    let mut decoder = IncrementalDecoder::new(tokenizer, skip);
    let mut pieces: Vec<String> = ids.iter().map(|&id| decoder.push(tokenizer, id)).collect();
    pieces.push(decoder.finish());
    pieces
}

/// All bytes of the ids, decoded by the standard library.
fn whole(tokenizer: &Tokenizer, ids: &[u32], skip: bool) -> String {
    let shown = ids.iter().filter(|&&id| !(skip && tokenizer.is_special(id)));
    let bytes: Vec<u8> = shown.flat_map(|&id| tokenizer.token_bytes(id)).copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn finished_characters_are_not_withheld() {
    let tokenizer = &TOKENIZERS[2];
    let text = "a🙂é漢";
    let ids = tokenizer.encode(text, EncodeOptions::default()).unwrap();
    let mut decoder = IncrementalDecoder::new(tokenizer, false);
    let mut bytes = Vec::new();
    let mut out = String::new();
    for &id in &ids {
        bytes.extend_from_slice(tokenizer.token_bytes(id));
        out.push_str(&decoder.push(tokenizer, id));
        let finished = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        assert_eq!(out, finished);
    }
    assert_eq!(out, text);
}

#[test]
fn the_space_before_a_sentence_piece_text_is_dropped_once() {
    let tokenizer = &TOKENIZERS[1];
    let ids = tokenizer.encode("  x", EncodeOptions::default()).unwrap();
    assert_eq!(tokenizer.decode(&ids, true), "  x");
    let with_bos = [&[1], &ids[..]].concat();
    assert_eq!(tokenizer.decode(&with_bos, true), "  x");
    assert_eq!(tokenizer.decode(&with_bos, false), "<s>   x");
    let mut decoder = IncrementalDecoder::continuing(true);
    let text: String = ids.iter().map(|&id| decoder.push(tokenizer, id)).collect();
    assert_eq!(text, "   x");
}

#[test]
fn unknown_ids_are_nothing() {
    assert_eq!(TOKENIZERS[0].decode(&[u32::MAX, 64, 1 << 20], false), "a");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pieces_concatenate_to_the_whole(
        which in 0usize..3,
        ids in prop::collection::vec(0u32..720, 0..40),
        skip in any::<bool>(),
    ) {
        let tokenizer = &TOKENIZERS[which];
        let text = pieces(tokenizer, &ids, skip).concat();
        prop_assert_eq!(&text, &tokenizer.decode(&ids, skip));
        let expected = whole(tokenizer, &ids, skip);
        let expected = if which == 1 { expected.strip_prefix(' ').unwrap_or(&expected) } else { &expected };
        prop_assert_eq!(&text, expected);
    }

    #[test]
    fn texts_survive_encoding_and_decoding(
        which in 0usize..2,
        text in "([a-z ]|\\PC|\n){0,30}",
        parse_special in any::<bool>(),
    ) {
        let tokenizer = &TOKENIZERS[which];
        let ids = tokenizer.encode(&text, EncodeOptions { add_special: false, parse_special }).unwrap();
        // SentencePiece writes a space as `▁` and cannot tell the two apart.
        let expected = if which == 1 { text.replace('▁', " ") } else { text };
        prop_assert_eq!(tokenizer.decode(&ids, false), expected);
    }
}

#[test]
fn chosen_special_tokens_are_shown_though_others_are_skipped() {
    let tokenizer = &TOKENIZERS[2];
    let [start, end] =
        ["<|im_start|>", "<|im_end|>"].map(|text| tokenizer.token_to_id(text).unwrap());
    let shown = tokenizer.special_among(&["<|im_end|>", "a", "<|no such token|>"]);
    assert_eq!(shown, [end]);
    let mut decoder = IncrementalDecoder::new(tokenizer, true).showing(shown);
    let text: String = [start, end].iter().map(|&id| decoder.push(tokenizer, id)).collect();
    assert_eq!(text, "<|im_end|>");
}
