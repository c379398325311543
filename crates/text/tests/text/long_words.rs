//! Long words and spaces with vocabularies of WordPiece: they cost little, and change no id.

use serde_json::{Value, json};
use text::{EncodeOptions, Tokenizer};

const WORDS: [&str; 8] = ["[PAD]", "[UNK]", "[SEP]", "a", "##a", "b", "!", "中"];

fn tokenizer(lowercase: bool, added: &[&str]) -> Tokenizer {
    let vocab: Value = WORDS.iter().zip(0..).map(|(word, id)| ((*word).to_owned(), id)).collect();
    let added = added.iter().zip(0..).map(|(text, at)| {
        json!({"id": if at == 0 { 2 } else { 7 + at }, "content": text, "special": true,
            "normalized": at % 2 == 1})
    });
    let file = json!({
        "added_tokens": added.collect::<Value>(),
        "normalizer": {"type": "BertNormalizer", "clean_text": true,
            "handle_chinese_chars": true, "strip_accents": null, "lowercase": lowercase},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocab,
            "continuing_subword_prefix": "##", "max_input_chars_per_word": 10},
    });
    Tokenizer::from_json_bytes(file.to_string().as_bytes(), None).unwrap()
}

#[test]
fn short_texts_have_the_ids_of_whole_ones() {
    let a = "a".repeat(1000);
    let text = [
        &*a,
        " ",
        "aaa",
        "  \n\t ",
        "é",
        &a,
        "e\u{301}",
        &a,
        "!",
        &a,
        "中",
        &a,
        "b",
        "[SEP]",
        &a,
        "\u{0}",
        "A".repeat(11).as_str(),
        " ",
        "a".repeat(10).as_str(),
        "\u{3000}  ",
        "Ж",
        &a,
    ]
    .concat();
    assert!(text.len() < 32 << 10);
    let pieces = 40;
    for lowercase in [true, false] {
        let tokenizer = tokenizer(lowercase, &["[SEP]"]);
        let ids = |text: &str| {
            let options = EncodeOptions { parse_special: true, ..EncodeOptions::default() };
            tokenizer.encode(text, options).unwrap()
        };
        let once = ids(&format!("{text} "));
        assert_eq!(ids(&format!("{text} ").repeat(pieces)), once.repeat(pieces));
        assert!(once.len() > 15 && once.contains(&2), "{once:?}");
    }
}

#[test]
fn long_words_and_spaces_cost_little() {
    let tokenizer = tokenizer(true, &["[SEP]"]);
    let ids = |text: &str| tokenizer.encode(text, EncodeOptions::default()).unwrap();
    assert_eq!(ids(&"word".repeat(2 << 20)), [1]);
    assert_eq!(ids(&format!("a{}b", " ".repeat(8 << 20))), [3, 5]);
}

#[test]
fn texts_with_added_tokens_that_a_cut_might_touch_stay_whole() {
    let tokenizer = tokenizer(true, &["[SEP]", "aab"]);
    let text = format!("{}aab", "a".repeat(40 << 10));
    let options = EncodeOptions { parse_special: true, ..EncodeOptions::default() };
    assert_eq!(tokenizer.encode(&text, options).unwrap(), [1, 8]);
}
