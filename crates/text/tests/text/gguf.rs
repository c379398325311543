//! The rules of GGUF vocabularies, on small files written here.

use crate::common::{data, expect_error, json, open, shown, strings, with};
use formats::gguf::{Array, Value};
use text::{EncodeOptions, GgufOptions, TextAssets, TokenKind, Tokenizer};

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER: i32 = 4;
const BYTE: i32 = 6;

/// A byte-level vocabulary: all printable bytes, a merge, a control and a user-defined token.
fn byte_level() -> Vec<(&'static str, Value)> {
    let mut tokens: Vec<String> = (b'!'..=b'~').map(|b| char::from(b).to_string()).collect();
    tokens.extend(["Ġ", "Ċ", "ab", "<|im_end|>", "<think>"].map(String::from));
    let mut types = vec![NORMAL; tokens.len()];
    let count = types.len();
    (types[count - 2], types[count - 1]) = (NORMAL, USER);
    vec![
        ("general.architecture", Value::String("qwen2".into())),
        ("tokenizer.ggml.model", Value::String("gpt2".into())),
        ("tokenizer.ggml.pre", Value::String("qwen2".into())),
        ("tokenizer.ggml.tokens", strings(&tokens)),
        ("tokenizer.ggml.token_type", Value::Array(Array::I32(types))),
        ("tokenizer.ggml.merges", strings(["a b"])),
        ("tokenizer.ggml.eos_token_id", Value::U32(count as u32 - 2)),
        ("tokenizer.ggml.padding_token_id", Value::U32(u32::MAX)),
        ("tokenizer.chat_template", Value::String("{{ eos_token }}".into())),
        ("tokenizer.chat_template.rag", Value::String("rag".into())),
    ]
}

/// A SentencePiece vocabulary in which `ab` scores better than `bc`.
fn sentence_piece() -> Vec<(&'static str, Value)> {
    let tokens = ["<unk>", "<s>", "</s>", "▁", "a", "b", "c", "ab", "bc", "▁a", "<0xC3>", "<0xA9>"];
    let types = [2, 3, 3, 1, 1, 1, 1, 1, 1, 1, BYTE, BYTE];
    let scores = [0.0, 0.0, 0.0, -9.0, -9.0, -9.0, -9.0, -1.0, -2.0, -3.0, 0.0, 0.0];
    vec![
        ("general.architecture", Value::String("llama".into())),
        ("tokenizer.ggml.model", Value::String("llama".into())),
        ("tokenizer.ggml.tokens", strings(tokens)),
        ("tokenizer.ggml.token_type", Value::Array(Array::I32(types.into()))),
        ("tokenizer.ggml.scores", Value::Array(Array::F32(scores.into()))),
    ]
}

/// Merges of characters in which `b c` comes before `a b`, unlike in the scores.
fn merges_of_characters() -> Vec<(&'static str, Value)> {
    let mut entries = sentence_piece();
    entries.retain(|(key, _)| *key != "tokenizer.ggml.model");
    entries.extend([
        ("tokenizer.ggml.model", Value::String("gemma4".into())),
        ("tokenizer.ggml.merges", strings(["b c", "a b", "▁ a"])),
        ("tokenizer.ggml.unknown_token_id", Value::U32(0)),
        ("tokenizer.ggml.bos_token_id", Value::U32(1)),
        ("tokenizer.ggml.eos_token_id", Value::U32(2)),
    ]);
    entries
}

#[test]
fn a_long_text_has_a_space_before_it_once() {
    let tokenizer = Tokenizer::from_gguf(&open(sentence_piece()), &GgufOptions::default());
    let tokenizer = tokenizer.unwrap();
    let ids =
        |times: usize| tokenizer.encode(&"ab cé ".repeat(times), EncodeOptions::default()).unwrap();
    let (one, two) = (ids(1), ids(2));
    let further = &two[one.len()..];
    let expected = [&one[..], &further.repeat(20_000 - 1)].concat();
    assert!(ids(20_000) == expected);
}

#[test]
fn merges_of_characters_come_in_their_order_and_bytes_spell_the_rest() {
    let tokenizer = Tokenizer::from_gguf(&open(merges_of_characters()), &GgufOptions::default());
    let tokenizer = tokenizer.unwrap();
    let ids = |text: &str| tokenizer.encode(text, EncodeOptions::default()).unwrap();
    // "bc" comes before "ab", which comes before "▁a"; é is two bytes.
    assert_eq!(ids("abc"), [4, 8]);
    assert_eq!(ids("c ab"), [6, 3, 7]);
    assert_eq!(ids("aé"), [4, 10, 11]);
    assert_eq!(tokenizer.decode(&ids("b aé"), false), "b aé");
}

fn tokenizer(entries: Vec<(&str, Value)>) -> text::Result<Tokenizer> {
    Tokenizer::from_gguf(&open(entries), &GgufOptions::default())
}

#[test]
fn control_tokens_need_parsing_and_user_tokens_do_not() {
    let tokenizer = tokenizer(byte_level()).unwrap();
    assert_eq!(shown(&tokenizer, "ab<|im_end|>", false, true), "ab <|im_end|>");
    assert_eq!(shown(&tokenizer, "<|im_end|>", false, false), "< | i m _ e n d | >");
    assert_eq!(shown(&tokenizer, "a<think>b", false, false), "a <think> b");
    assert!(tokenizer.is_special(tokenizer.token_to_id("<|im_end|>").unwrap()));
    let think = tokenizer.token_to_id("<think>").unwrap();
    assert_eq!(tokenizer.token_kind(think), Some(TokenKind::Added));
    assert_eq!(tokenizer.special.pad, None);
}

#[test]
fn sentence_piece_merges_by_score_and_spells_in_bytes() {
    let tokenizer = tokenizer(sentence_piece()).unwrap();
    assert_eq!(shown(&tokenizer, "abc", false, false), "▁ ab c");
    assert_eq!(shown(&tokenizer, "a", true, false), "<s> ▁a");
    assert_eq!(shown(&tokenizer, "é", false, false), "▁ <0xC3> <0xA9>");
    assert_eq!(shown(&tokenizer, "z", false, false), "▁ <unk>");
    assert_eq!(shown(&tokenizer, "a</s>a", false, true), "▁a </s> ▁a");
    let plain = with(sentence_piece(), "tokenizer.ggml.add_space_prefix", Value::Bool(false));
    let plain = with(plain, "tokenizer.ggml.add_bos_token", Value::Bool(false));
    let plain = with(plain, "tokenizer.ggml.add_eos_token", Value::Bool(true));
    assert_eq!(shown(&self::tokenizer(plain).unwrap(), "a", true, false), "a </s>");
}

#[test]
fn unknown_pre_types_are_named_and_can_fall_back() {
    let entries = || with(byte_level(), "tokenizer.ggml.pre", Value::String("novel-9".into()));
    expect_error("pre", tokenizer(entries()).map(drop), "novel-9");
    expect_error("pre", tokenizer(entries()).map(drop), "deepseek-v3");
    let options = GgufOptions { pre_fallback: Some("gpt-2".into()) };
    assert!(Tokenizer::from_gguf(&open(entries()), &options).is_ok());
    let options = GgufOptions { pre_fallback: Some("also-novel".into()) };
    expect_error("pre", Tokenizer::from_gguf(&open(entries()), &options).map(drop), "also-novel");
}

#[test]
fn broken_vocabularies_are_errors_that_name_the_key() {
    for (key, value, words) in [
        ("tokenizer.ggml.model", Value::String("rwkv".into()), "rwkv"),
        ("tokenizer.ggml.tokens", strings(["a", "b", "a"]), "\"a\" has ids 0 and 2"),
        ("tokenizer.ggml.tokens", Value::U32(3), "tokenizer.ggml.tokens"),
        ("tokenizer.ggml.merges", strings(["a ☃"]), "☃"),
        ("tokenizer.ggml.merges", strings(["b a"]), "\"ba\""),
        ("tokenizer.ggml.merges", strings(["ab"]), "not a pair"),
        ("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![1, 1])), "found 2"),
        ("tokenizer.ggml.add_bos_token", Value::Bool(true), "no bos token"),
        ("tokenizer.ggml.add_bos_token", Value::String("yes".into()), "add_bos_token"),
    ] {
        expect_error(key, tokenizer(with(byte_level(), key, value)).map(drop), words);
    }
    let short = Value::Array(Array::F32(vec![0.5]));
    let entries = with(sentence_piece(), "tokenizer.ggml.scores", short);
    expect_error("scores", tokenizer(entries).map(drop), "tokenizer.ggml.scores");
}

#[test]
fn templates_and_special_tokens_come_from_metadata() {
    let assets = TextAssets::from_gguf(&open(byte_level()), &GgufOptions::default()).unwrap();
    assert_eq!(assets.templates.names().collect::<Vec<_>>(), ["default", "rag"]);
    let template = assets.templates.get(None, true).unwrap();
    let text = template.render(&serde_json::json!({}), &assets.special, None).unwrap();
    assert_eq!(text, "<|im_end|>");
}

#[test]
fn control_tokens_are_found_by_their_type() {
    let mut types = vec![NORMAL; 99];
    types[97] = CONTROL;
    let entries = with(byte_level(), "tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    let tokenizer = tokenizer(entries).unwrap();
    assert_eq!(shown(&tokenizer, "<think>", false, false), "< t h i n k >");
}

#[test]
fn marks_of_a_gap_are_those_that_the_file_states() {
    let key = |role: &'static str| match role {
        "pre" => "tokenizer.ggml.fim_pre_token_id",
        "suf" => "tokenizer.ggml.fim_suf_token_id",
        _ => "tokenizer.ggml.fim_mid_token_id",
    };
    let load = |entries| Tokenizer::from_gguf(&open(entries), &GgufOptions::default()).unwrap();
    assert_eq!(load(byte_level()).infill, None);
    let stated = [(key("pre"), Value::U32(3)), (key("suf"), Value::U32(4))];
    let part: Vec<_> = byte_level().into_iter().chain(stated).collect();
    assert_eq!(load(part.clone()).infill, None, "the middle is missing");
    let outside = part.iter().cloned().chain([(key("mid"), Value::U32(1 << 20))]).collect();
    assert_eq!(load(outside).infill, None, "an id outside the vocabulary");
    let whole = load(part.into_iter().chain([(key("mid"), Value::U32(5))]).collect());
    assert_eq!(whole.infill.unwrap().around(&[7], &[8]), [3, 7, 4, 8, 5]);
}

/// A vocabulary with `hello`, which no merges make.
fn unmerged(pre: &str) -> Vec<(&'static str, Value)> {
    let mut tokens: Vec<String> = (b'!'..=b'~').map(|b| char::from(b).to_string()).collect();
    let more = ["Ġ", "Ċ", "▁", "he", "ll", "hello", "Ġhello", "▁hello", "<s>"];
    tokens.extend(more.map(String::from));
    let (last, mut types) = (tokens.len() - 1, vec![NORMAL; tokens.len()]);
    types[last] = CONTROL;
    vec![
        ("general.architecture", Value::String("llama".into())),
        ("tokenizer.ggml.model", Value::String("gpt2".into())),
        ("tokenizer.ggml.pre", Value::String(pre.into())),
        ("tokenizer.ggml.tokens", strings(&tokens)),
        ("tokenizer.ggml.token_type", Value::Array(Array::I32(types))),
        ("tokenizer.ggml.merges", strings(["h e", "l l"])),
        ("tokenizer.ggml.bos_token_id", Value::U32(last as u32)),
    ]
}

#[test]
fn every_pre_type_has_the_flags_of_llama_cpp() {
    let begins = [
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        "tekken chameleon gemma4 granite-embed-multi-311m",
    ];
    for row in json(&data("pre_types.json"))["rows"].as_array().unwrap() {
        for name in row["names"].as_str().unwrap().split(' ') {
            let expected = match name {
                "gemma4" | "granite-embed-multi-311m" | "sarvam-moe" => "he ll o ▁ he ll o",
                "whitespace" => "he ll o he ll o",
                _ if row["whole"] == true => "hello Ġhello",
                _ => "he ll o Ġ he ll o",
            };
            let begins = begins.iter().any(|names| names.split(' ').any(|it| it == name));
            let expected = if begins { format!("<s> {expected}") } else { expected.to_owned() };
            let tokenizer = tokenizer(unmerged(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(shown(&tokenizer, "hello hello", true, false), expected, "{name}");
        }
    }
}

#[test]
fn files_of_gemma_4_cannot_leave_out_the_beginning() {
    for (pre, expected) in [("gemma4", "<s> he ll o"), ("sarvam-moe", "he ll o")] {
        let entries = with(unmerged(pre), "tokenizer.ggml.add_bos_token", Value::Bool(false));
        assert_eq!(shown(&tokenizer(entries).unwrap(), "hello", true, false), expected, "{pre}");
    }
}

#[test]
fn words_are_merged_in_lower_case_where_the_file_says_so() {
    let entries =
        || with(unmerged("whitespace"), "tokenizer.ggml.model", Value::String("whitespace".into()));
    let text = " HE\u{2003}hello\n ☃ ";
    assert_eq!(shown(&tokenizer(entries()).unwrap(), text, false, false), "H E he ll o");
    let entries = with(entries(), "tokenizer.ggml.normalizer.lowercase", Value::Bool(true));
    assert_eq!(shown(&tokenizer(entries).unwrap(), text, false, false), "he he ll o");
}

#[test]
fn tokens_that_end_a_turn_are_control_tokens_of_any_type() {
    for (text, code) in [NORMAL, 2, CONTROL, USER, 5, BYTE].iter().flat_map(|code| {
        ["<|im_end|>", "<|flush|>", "[EOT]", "[e~[", "_<EOT>"].map(|text| (text, *code))
    }) {
        let tokens = ["a", text, "b"];
        let entries = with(byte_level(), "tokenizer.ggml.tokens", strings(tokens));
        let types = Value::Array(Array::I32(vec![NORMAL, code, NORMAL]));
        let entries = with(entries, "tokenizer.ggml.token_type", types);
        let entries = with(entries, "tokenizer.ggml.merges", strings::<&str>([]));
        let entries = with(entries, "tokenizer.ggml.eos_token_id", Value::U32(0));
        let file = open(entries);
        let tokenizer = Tokenizer::from_gguf(&file, &GgufOptions::default()).unwrap();
        assert!(tokenizer.is_special(1), "{text} of type {code}");
        assert_eq!(shown(&tokenizer, &format!("a{text}b"), false, true), format!("a {text} b"));
        assert_eq!(formats::gguf::TurnEnds::read(file.metadata()).unwrap().ids, [0, 1]);
    }
}
