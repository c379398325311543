//! The vocabularies of encoders in GGUF files: texts have the ids of the same `tokenizer.json`.

use crate::common::{expect_error, open, shown, strings, with};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use formats::gguf::{Array, Value};
use serde_json::{Value as Json, json};
use text::{EncodeOptions, GgufOptions, Tokenizer};

type Entries = Vec<(&'static str, Value)>;

const TEXTS: [&str; 10] = [
    "",
    "Ab, a!",
    "abab xyz ab",
    "  a\t\nb  ",
    "École à l'ab",
    "中a国",
    "a\u{0}b \u{fffd}",
    "a [SEP] b",
    "ａ ﬁ ½",
    "a[PAD12] [PAD12]",
];

const WORDS: [&str; 16] = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "##b", "##ab", ",", "!", "e", "##cole", "l", "'",
    "中", "É",
];

/// WordPiece as a GGUF file has it: words have a mark, and pieces that continue them have none.
fn bert() -> Entries {
    let phantom = |token: &str| match (token.starts_with('['), token.strip_prefix("##")) {
        (true, _) => token.to_owned(),
        (_, Some(piece)) => piece.to_owned(),
        (_, None) => format!("▁{token}"),
    };
    let types = WORDS.iter().map(|token| if token.starts_with('[') { 3 } else { 1 });
    vec![
        ("tokenizer.ggml.model", Value::String("bert".into())),
        ("tokenizer.ggml.tokens", strings(WORDS.map(phantom))),
        ("tokenizer.ggml.token_type", Value::Array(Array::I32(types.collect()))),
        ("tokenizer.ggml.token_type_count", Value::U32(2)),
        ("tokenizer.ggml.unknown_token_id", Value::U32(1)),
        ("tokenizer.ggml.bos_token_id", Value::U32(2)),
        ("tokenizer.ggml.seperator_token_id", Value::U32(3)),
    ]
}

fn bert_json(lowercase: bool, strip_accents: Option<bool>) -> Json {
    let vocab: Json = WORDS.iter().zip(0..).map(|(token, id)| ((*token).to_owned(), id)).collect();
    json!({
        "added_tokens": added(&[(0, "[PAD]"), (1, "[UNK]"), (2, "[CLS]"), (3, "[SEP]")]),
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": strip_accents, "lowercase": lowercase},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocab,
            "continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
    })
}

fn added(tokens: &[(u32, &str)]) -> Json {
    let one = |(id, text): &(u32, &str)| json!({"id": id, "content": text, "special": true, "normalized": false});
    tokens.iter().map(one).collect()
}

const PIECES: [(&str, f32); 12] = [
    ("<s>", 0.0),
    ("<pad>", 0.0),
    ("</s>", 0.0),
    ("<unk>", 0.0),
    ("▁", -2.0),
    ("a", -3.0),
    ("b", -3.5),
    ("ab", -4.0),
    ("▁a", -4.5),
    ("▁ab", -7.0),
    ("!", -6.0),
    ("xa", -9.0),
];

/// Unigram, with a placeholder that the model does not use.
fn unigram() -> Entries {
    let texts = PIECES.iter().map(|(text, _)| *text).chain(["[PAD12]"]);
    let scores = PIECES.iter().map(|(_, score)| *score).chain([-10_000.0]);
    let types = (0..PIECES.len()).map(|id| match id {
        3 => 2,
        0..4 => 3,
        _ => 1,
    });
    let types = types.chain([5]);
    vec![
        ("tokenizer.ggml.model", Value::String("t5".into())),
        ("tokenizer.ggml.tokens", strings(texts)),
        ("tokenizer.ggml.scores", Value::Array(Array::F32(scores.collect()))),
        ("tokenizer.ggml.token_type", Value::Array(Array::I32(types.collect()))),
        ("tokenizer.ggml.bos_token_id", Value::U32(0)),
        ("tokenizer.ggml.eos_token_id", Value::U32(2)),
        ("tokenizer.ggml.unknown_token_id", Value::U32(3)),
        ("tokenizer.ggml.seperator_token_id", Value::U32(2)),
        ("tokenizer.ggml.add_bos_token", Value::Bool(true)),
    ]
}

fn unigram_json(normalizer: Json, pre_tokenizer: Json) -> Json {
    let last = pre_tokenizer["pretokenizers"][1].clone();
    json!({
        "added_tokens": added(&[(0, "<s>"), (1, "<pad>"), (2, "</s>"), (3, "<unk>")]),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer.clone(),
        "post_processor": {"type": "RobertaProcessing", "cls": ["<s>", 0], "sep": ["</s>", 2]},
        "decoder": if last.is_null() { pre_tokenizer } else { last },
        "model": {"type": "Unigram", "unk_id": 3, "vocab": PIECES},
    })
}

fn metaspace(scheme: &str) -> Json {
    json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true})
}

/// A table that replaces the byte `b` by `a`, of bytes.
fn table() -> Vec<u8> {
    let mut units = vec![0u32; 1024];
    units[0] = 256 << 10;
    let child = 256 ^ usize::from(b'b');
    units[child] = ((child ^ 512) as u32) << 10 | 1 << 8 | u32::from(b'b');
    units[512] = 1 << 31;
    let units = units.iter().flat_map(|unit| unit.to_le_bytes());
    4096u32.to_le_bytes().into_iter().chain(units).chain(*b"a\0").collect()
}

fn read(entries: Entries) -> text::Result<Tokenizer> {
    Tokenizer::from_gguf(&open(entries), &GgufOptions::default())
}

/// Checks that texts, pairs and what they decode to are the same.
fn check(entries: Entries, published: &Json) {
    let found = read(entries).unwrap();
    let expected = Tokenizer::from_json_bytes(published.to_string().as_bytes(), None).unwrap();
    for text in TEXTS {
        for (add_special, parse_special) in [(false, false), (true, true)] {
            let options = EncodeOptions { add_special, parse_special };
            let ids = expected.encode(text, options).unwrap();
            assert_eq!(found.encode(text, options).unwrap(), ids, "{text:?} {published}");
        }
        let ids = expected.encode(text, EncodeOptions::default()).unwrap();
        assert_eq!(found.decode(&ids, false), expected.decode(&ids, false), "{text:?}");
        for most in [usize::MAX, 5] {
            let pair = expected.encode_pair(&[4, 5], text, most).unwrap();
            assert_eq!(found.encode_pair(&[4, 5], text, most).unwrap(), pair, "{text:?}");
        }
    }
}

#[test]
fn word_pieces_are_those_of_tokenizer_json() {
    let flag = |key, flag| (key, Value::Bool(flag));
    let lower = "tokenizer.ggml.normalizer.lowercase";
    let accents = "tokenizer.ggml.normalizer.strip_accents";
    check(bert(), &bert_json(true, None));
    for (lowercase, strip) in [(true, false), (false, true), (false, false)] {
        let entries = [bert(), vec![flag(lower, lowercase), flag(accents, strip)]].concat();
        check(entries, &bert_json(lowercase, Some(strip)));
        let entries = [bert(), vec![flag(lower, lowercase)]].concat();
        check(entries, &bert_json(lowercase, None));
    }
    let tokenizer = read(bert()).unwrap();
    assert_eq!(shown(&tokenizer, "abab École", true, false), "[CLS] a ##b ##ab e ##cole [SEP]");
    assert_eq!(tokenizer.encode_pair(&[4], "b", 99).unwrap().types, [0, 0, 0, 1, 1]);
    let one = with(bert(), "tokenizer.ggml.token_type_count", Value::U32(1));
    assert_eq!(read(one).unwrap().encode_pair(&[4], "b", 99).unwrap().types, [0; 5]);
}

#[test]
fn words_of_old_files_are_in_brackets_without_a_mark() {
    let mut types = vec![1; WORDS.len()];
    types[1] = 3;
    let old = with(bert(), "tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    let mut old = with(old, "tokenizer.ggml.cls_token_id", Value::U32(2));
    old.retain(|(key, _)| *key != "tokenizer.ggml.bos_token_id");
    assert_eq!(
        shown(&read(old).unwrap(), "a [SEP]", true, false),
        "[CLS] a [UNK] [UNK] [UNK] [SEP]"
    );
}

#[test]
fn pieces_are_those_of_tokenizer_json() {
    let flag = |key: &str, flag| match key {
        "merge" => ("tokenizer.ggml.remove_extra_whitespaces", Value::Bool(flag)),
        _ => ("tokenizer.ggml.add_space_prefix", Value::Bool(flag)),
    };
    check(unigram(), &unigram_json(Json::Null, metaspace("always")));
    let bare = [unigram(), vec![flag("space", false)]].concat();
    check(bare, &unigram_json(Json::Null, metaspace("never")));
    let stages = [json!({"type": "WhitespaceSplit"}), metaspace("always")];
    let split = json!({"type": "Sequence", "pretokenizers": stages});
    let merged = [unigram(), vec![flag("merge", true), flag("space", true)]].concat();
    check(merged, &unigram_json(Json::Null, split));
    let bytes = Value::Array(Array::U8(table()));
    let replaced = [unigram(), vec![("tokenizer.ggml.precompiled_charsmap", bytes)]].concat();
    let table = STANDARD.encode(table());
    let normalizer = json!({"type": "Precompiled", "precompiled_charsmap": table});
    check(replaced.clone(), &unigram_json(normalizer, metaspace("always")));
    assert_eq!(shown(&read(replaced).unwrap(), "b", true, false), "<s> ▁a </s>");
}

#[test]
fn what_vocabularies_of_encoders_lack_is_named() {
    let check = |entries: Entries, key: &'static str, value: Value, words: &str| {
        expect_error(key, read(with(entries, key, value)).map(drop), words);
    };
    let unknown = "tokenizer.ggml.unknown_token_id";
    check(bert(), unknown, Value::U32(99), unknown);
    let bos = "tokenizer.ggml.bos_token_id";
    check(bert(), bos, Value::U32(99), bos);
    let sep = "tokenizer.ggml.seperator_token_id";
    check(bert(), sep, Value::U32(99), sep);
    check(bert(), "tokenizer.ggml.tokens", strings(["p", "q", "r", "s", "▁##a", "a"]), "##a");
    let charsmap = "tokenizer.ggml.precompiled_charsmap";
    check(unigram(), charsmap, Value::Array(Array::U8(vec![9, 0, 0, 0, 1])), charsmap);
    check(unigram(), charsmap, Value::U32(1), "bytes");
    let scores = vec![f32::NAN; 13];
    check(unigram(), "tokenizer.ggml.scores", Value::Array(Array::F32(scores)), "token 0");
    check(unigram(), "tokenizer.ggml.add_sep_token", Value::U32(1), "add_sep_token");
}

#[test]
fn files_say_whether_texts_have_a_separator_between_them() {
    let between = |entries: Entries| read(entries).unwrap().encode_pair(&[5], "", 99).unwrap().ids;
    let flag = |flag| ("tokenizer.ggml.add_sep_token", Value::Bool(flag));
    assert_eq!(between(unigram()), [0, 5, 2, 2, 2]);
    assert_eq!(between([unigram(), vec![flag(false)]].concat()), [0, 5, 2, 2]);
    let other = with(unigram(), "tokenizer.ggml.seperator_token_id", Value::U32(4));
    assert_eq!(between([other, vec![flag(true)]].concat()), [0, 5, 2, 4, 2]);
    let bytes = |pre: &str| {
        let tokens = ["a", "b", "<s>", "</s>"];
        let flag = |key| (key, Value::Bool(true));
        vec![
            ("tokenizer.ggml.model", Value::String("gpt2".into())),
            ("tokenizer.ggml.pre", Value::String(pre.into())),
            ("tokenizer.ggml.tokens", strings(tokens)),
            ("tokenizer.ggml.merges", strings::<&str>([])),
            ("tokenizer.ggml.bos_token_id", Value::U32(2)),
            ("tokenizer.ggml.eos_token_id", Value::U32(3)),
            flag("tokenizer.ggml.add_bos_token"),
            flag("tokenizer.ggml.add_eos_token"),
        ]
    };
    assert_eq!(between(bytes("roberta-bpe")), [2, 5, 3, 3, 3]);
    assert_eq!(between(bytes("gpt-2")), [5]);
    assert_eq!(between([bytes("modern-bert"), vec![flag(false)]].concat()), [2, 5, 3, 3]);
}

#[test]
fn modern_vocabularies_compose_characters() {
    let tokens = ["a", "Ã", "©", "é", "Ã©"];
    let entries = |pre: &str| {
        vec![
            ("tokenizer.ggml.model", Value::String("gpt2".into())),
            ("tokenizer.ggml.pre", Value::String(pre.into())),
            ("tokenizer.ggml.tokens", strings(tokens)),
            ("tokenizer.ggml.merges", strings(["Ã ©"])),
        ]
    };
    let ids = |pre| read(entries(pre)).unwrap().encode("e\u{301}", EncodeOptions::default());
    assert_eq!(ids("modern-bert").unwrap(), [4]);
    assert_ne!(ids("gpt-2").ok(), Some(vec![4]));
}
