//! The vocabulary of a synthetic checkpoint: all bytes, three special tokens, then made-up words
//! up to the size of the shape, which are decoded but never encoded.
//!
//! Follows the byte alphabet of GPT-2 and the ChatML form of conversations.

use formats::config::SpecialIds;
use formats::gguf::{Array, GgufWriter, Value};
use serde_json::{Map, Value as Json, json};

/// Special tokens, after the bytes.
const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
const BYTES: u32 = 256;
const PAD: u32 = BYTES;
const END: u32 = BYTES + 2;
/// Tokens of the smallest vocabulary.
pub(super) const MIN_TOKENS: usize = BYTES as usize + SPECIAL.len();

const TEMPLATE: &str = "{%- for message in messages %}\
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\
    {%- endfor %}\
    {%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

/// The ids with a role.
pub(super) fn special_ids() -> SpecialIds {
    SpecialIds { bos: None, eos: vec![END], pad: Some(PAD) }
}

/// `generation_config.json`.
pub(super) fn generation_json() -> Json {
    json!({"do_sample": false, "eos_token_id": [END], "pad_token_id": PAD})
}

/// `tokenizer.json` and `tokenizer_config.json` of `size` tokens.
pub(super) fn to_hf_json(size: usize) -> (Json, Json) {
    let vocab: Map<String, Json> = tokens(size).zip(0u32..).map(|(t, id)| (t, id.into())).collect();
    let added = SPECIAL.iter().zip(BYTES..).map(|(content, id)| {
        json!({"id": id, "content": content, "special": true, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false})
    });
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
        "use_regex": true});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": null, "pre_tokenizer": byte_level, "post_processor": null,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "byte_fallback": false,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "ignore_merges": false, "vocab": vocab, "merges": []},
    });
    let config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": false,
        "eos_token": SPECIAL[2], "pad_token": SPECIAL[0], "chat_template": TEMPLATE,
    });
    (tokenizer, config)
}

/// The same vocabulary as metadata of a GGUF file.
pub(super) fn to_gguf(size: usize, writer: &mut GgufWriter) {
    const NORMAL: i32 = 1;
    const CONTROL: i32 = 3;
    let special = BYTES as usize..MIN_TOKENS;
    let kinds = (0..size).map(|id| if special.contains(&id) { CONTROL } else { NORMAL });
    let mut set = |key: &str, value| writer.set(&format!("tokenizer.{key}"), value);
    set("ggml.model", Value::String("gpt2".into()));
    set("ggml.pre", Value::String("gpt-2".into()));
    set("ggml.tokens", Value::Array(Array::Strings(tokens(size).collect())));
    set("ggml.token_type", Value::Array(Array::I32(kinds.collect())));
    set("ggml.merges", Value::Array(Array::Strings(std::iter::empty::<&str>().collect())));
    set("ggml.eos_token_id", Value::U32(END));
    set("ggml.padding_token_id", Value::U32(PAD));
    set("ggml.add_bos_token", Value::Bool(false));
    set("chat_template", Value::String(TEMPLATE.into()));
}

fn tokens(size: usize) -> impl Iterator<Item = String> {
    let bytes = (0..=u8::MAX).map(|byte| byte_char(byte).to_string());
    let special = SPECIAL.iter().map(|token| (*token).to_owned());
    bytes.chain(special).chain((0..).map(word)).take(size)
}

/// GPT-2 writes printable bytes as themselves and the others, in order, from U+0100 on.
fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return char::from(byte);
    }
    let others_before = (0..byte).filter(|b| !printable(*b)).count() as u32;
    char::from_u32(0x100 + others_before).expect("fewer than 256")
}

/// A pronounceable word for each number, with a space before it.
fn word(mut number: usize) -> String {
    const CONSONANTS: &[u8] = b"bdfgklmnprstvz";
    const VOWELS: &[u8] = b"aeiou";
    let mut word = String::from("Ġ");
    loop {
        let syllable = number % (CONSONANTS.len() * VOWELS.len());
        word.push(char::from(CONSONANTS[syllable / VOWELS.len()]));
        word.push(char::from(VOWELS[syllable % VOWELS.len()]));
        number /= CONSONANTS.len() * VOWELS.len();
        if number == 0 {
            return word;
        }
        number -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use text::{EncodeOptions, Tokenizer};

    #[test]
    fn no_token_comes_twice() {
        let all: HashSet<String> = tokens(200_000).collect();
        assert_eq!(all.len(), 200_000);
    }

    #[test]
    fn every_text_is_encoded_by_its_bytes_and_comes_back() {
        let (tokenizer, config) = to_hf_json(1000);
        let (tokenizer, config) = (tokenizer.to_string(), config.to_string());
        let tokenizer =
            Tokenizer::from_json_bytes(tokenizer.as_bytes(), Some(config.as_bytes())).unwrap();
        let text = "Möwe 🐦\n\u{0} ba";
        let ids = tokenizer.encode(text, EncodeOptions::default()).unwrap();
        assert_eq!(ids, text.bytes().map(u32::from).collect::<Vec<_>>());
        assert_eq!(tokenizer.decode(&ids, false), text);
        assert_eq!(tokenizer.decode(&[MIN_TOKENS as u32], false), " ba");
        assert_eq!(tokenizer.special.eos, Some(END));
    }
}
