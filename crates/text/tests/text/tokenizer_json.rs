//! `tokenizer.json` tokenizers against ids and decodings made by Hugging Face.

use crate::common::{data, expect_error, json};
use serde_json::Value;
use std::path::Path;
use text::{ChatTemplate, EncodeOptions, GgufOptions, TextAssets, Tokenizer};

const PARSE: EncodeOptions = EncodeOptions { add_special: false, parse_special: true };
const FULL: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn check_case(tokenizer: &Tokenizer, case: &Value) {
    let text = case["text"].as_str().unwrap();
    let expected = ids(&case["ids"]);
    assert_eq!(tokenizer.encode(text, PARSE).unwrap(), expected, "{text:?}");
    let full = ids(&case["ids_with_special"]);
    assert_eq!(tokenizer.encode(text, FULL).unwrap(), full, "{text:?} with special tokens");
    assert_eq!(tokenizer.decode(&expected, false), case["decoded"], "decoding of {text:?}");
    assert_eq!(tokenizer.decode(&expected, true), case["decoded_skip_special"]);
}

fn check_folder(folder: &Path) {
    let tokenizer = Tokenizer::from_folder(folder).unwrap();
    let reference = json(&folder.join("reference.json"));
    let cases = reference["tokenizer_cases"].as_array().unwrap();
    assert!(!cases.is_empty());
    cases.iter().for_each(|case| check_case(&tokenizer, case));
    for chat in reference["chat"].as_array().into_iter().flatten() {
        let rendered = chat["rendered"].as_str().unwrap();
        assert_eq!(tokenizer.encode(rendered, PARSE).unwrap(), ids(&chat["ids"]), "{rendered:?}");
    }
    for prompt in reference["prompts"].as_array().into_iter().flatten() {
        let text = prompt["text"].as_str().unwrap();
        assert_eq!(tokenizer.encode(text, FULL).unwrap(), ids(&prompt["input_ids"]));
    }
}

#[test]
fn own_checkpoints_tokenize_as_hugging_face_does() {
    ["llama3", "mistral", "qwen3"].iter().for_each(|name| check_folder(&data(name)));
}

#[test]
fn added_tokens_of_the_configuration_are_those_of_transformers() {
    let goldens = json(&data("config_tokens.json"));
    let texts = goldens["texts"].as_array().unwrap();
    let template = ChatTemplate::from_source(goldens["template"].as_str().unwrap()).unwrap();
    for case in goldens["cases"].as_array().unwrap() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &Value| {
            std::fs::write(folder.path().join(name), content.to_string()).unwrap();
        };
        let mut file = json(&data("llama3").join("tokenizer.json"));
        file["added_tokens"] = case["added"].clone();
        write("tokenizer.json", &file);
        write("tokenizer_config.json", &case["config"]);
        for (name, content) in case["files"].as_object().unwrap() {
            write(name, content);
        }
        let assets = TextAssets::load(folder.path(), &GgufOptions::default()).unwrap();
        let rendered = template.render(&serde_json::json!({}), &assets.special, None).unwrap();
        assert_eq!(rendered, case["rendered"].as_str().unwrap(), "{}", case["name"]);
        let tokenizer = assets.tokenizer;
        for (text, expected) in texts.iter().zip(case["ids"].as_array().unwrap()) {
            let text = text.as_str().unwrap();
            let found = tokenizer.encode(text, FULL).unwrap();
            assert_eq!(found, ids(expected), "{}: {text:?}", case["name"]);
        }
    }
}

#[test]
fn broken_added_tokens_of_the_configuration_are_errors() {
    let bytes = std::fs::read(data("llama3").join("tokenizer.json")).unwrap();
    for (config, words) in [
        (r#"{"added_tokens_decoder": {"x": {"content": "a"}}}"#, "\"x\" is not an id"),
        (r#"{"added_tokens_decoder": {"700": {}}}"#, "700 has no \"content\""),
    ] {
        let result = Tokenizer::from_json_bytes(&bytes, Some(config.as_bytes()));
        expect_error(config, result.map(drop), words);
    }
    // What is no token counts for nothing.
    let odd = r#"{"pad_token": 3, "extra_special_tokens": [1, ""], "added_tokens_decoder": null}"#;
    assert!(Tokenizer::from_json_bytes(&bytes, Some(odd.as_bytes())).is_ok());
}

#[test]
fn normalized_added_tokens_keep_their_space_when_decoded() {
    let mut file = json(&data("mistral").join("tokenizer.json"));
    let id = file["model"]["vocab"].as_object().unwrap().len();
    let flags = serde_json::json!({"id": id, "content": "foo", "normalized": true,
        "special": false, "single_word": false, "lstrip": false, "rstrip": false});
    file["added_tokens"].as_array_mut().unwrap().push(flags);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
    let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
    let ids = tokenizer.encode("a foo b", PARSE).unwrap();
    assert!(ids.contains(&(id as u32)));
    assert_eq!(tokenizer.decode(&ids, false), "a foo b");
}

/// The ids are those of the Python package tokenizers 0.23.3.
#[test]
fn added_tokens_have_the_ids_of_tokenizers_whatever_the_file_says() {
    let mut file = json(&data("llama3").join("tokenizer.json"));
    let token = |id: u32, text: &str, special: bool| serde_json::json!({"id": id, "content": text, "special": special});
    file["added_tokens"] = serde_json::json!([
        token(900, "<b>", false),
        token(5, "<a>", true),
        token(901, "<b>", true),
        token(902, "the", false),
        token(950, "", false),
        token(4_000_000_000, "<c>", false),
    ]);
    file["post_processor"] = Value::Null;
    let tokenizer = Tokenizer::from_json_bytes(file.to_string().as_bytes(), None).unwrap();
    let ids = tokenizer.encode("x<a>y<b>the<c>", PARSE).unwrap();
    assert_eq!(ids, [87, 696, 88, 695, 399, 697]);
    assert_eq!(tokenizer.decode(&ids, true), "xythe<c>");
}

/// The ids are those of the Python package tokenizers 0.23.3.
#[test]
fn texts_are_split_into_fixed_lengths_as_tokenizers_does() {
    let mut file = json(&data("llama3").join("tokenizer.json"));
    let mut check = |length: Value, expected: &[u32]| {
        let mut split = serde_json::json!({"type": "FixedLength"});
        if !length.is_null() {
            split["length"] = length;
        }
        let bytes = serde_json::json!({"type": "ByteLevel", "add_prefix_space": false,
            "trim_offsets": true, "use_regex": true});
        file["pre_tokenizer"] =
            serde_json::json!({"type": "Sequence", "pretokenizers": [split, bytes]});
        let tokenizer = Tokenizer::from_json_bytes(file.to_string().as_bytes(), None)?;
        assert_eq!(tokenizer.encode("Hello world, the é🙂n", PARSE).unwrap(), expected);
        Ok(())
    };
    let end = [277, 75, 67, 11, 326, 68, 220, 127, 102, 172, 253, 247, 224, 77];
    check(3.into(), &[&[39, 68, 75, 322, 220, 86][..], &end].concat()).unwrap();
    check(Value::Null, &[&[39, 68, 75, 322, 306][..], &end].concat()).unwrap();
    expect_error("length 0", check(0.into(), &[]), "a length of at least 1");
}

/// The ids are those of the Python package tokenizers 0.23.3, whose expressions are Oniguruma's.
#[test]
fn anchors_of_expressions_are_those_of_lines() {
    let text = "a  \n b\r\n\t\nthe $ ^x]";
    let end = [198, 399, 220, 3, 220, 61, 87, 60];
    let whole_line = [&[64, 256, 198, 284, 201, 198, 197][..], &end].concat();
    let from_line = [&[64, 256, 198, 220, 65, 201, 198, 197][..], &end].concat();
    for (expression, expected) in [
        (r"\s+$", &whole_line),
        (r"^\s+", &from_line),
        (r"[$^\s]+", &from_line),
        (r"[]$a]+|^b", &whole_line),
        (r"[^]^]+$|\$", &whole_line),
        (r"\s++$|\s*[\r\n]", &whole_line),
    ] {
        let mut file = json(&data("llama3").join("tokenizer.json"));
        file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = expression.into();
        let tokenizer = Tokenizer::from_json_bytes(file.to_string().as_bytes(), None).unwrap();
        assert_eq!(&tokenizer.encode(text, PARSE).unwrap(), expected, "{expression}");
    }
}

#[test]
fn a_stage_that_panics_is_an_error() {
    let mut file = json(&data("llama3").join("tokenizer.json"));
    file["normalizer"] =
        serde_json::json!({"type": "Replace", "pattern": {"Regex": "x*"}, "content": "y"});
    let tokenizer = Tokenizer::from_json_bytes(file.to_string().as_bytes(), None).unwrap();
    expect_error("x*", tokenizer.encode("a b", PARSE).map(drop), "a stage of the tokenizer broke");
}

#[test]
fn reference_checkpoints_tokenize_as_hugging_face_does() {
    let Some(models) = fixtures::find("models") else { return };
    let mut folders = 0;
    for folder in std::fs::read_dir(models).unwrap() {
        check_folder(&folder.unwrap().path());
        folders += 1;
    }
    assert!(folders > 10);
}

#[test]
fn byte_level_greedy_texts_decode_as_hugging_face_does() {
    let Some(models) = fixtures::find("models") else { return };
    for name in ["llama3", "qwen2", "qwen3", "gpt_oss", "deepseek_v3"] {
        let folder = models.join(name);
        let tokenizer = Tokenizer::from_folder(&folder).unwrap();
        for prompt in json(&folder.join("reference.json"))["prompts"].as_array().unwrap() {
            let text = tokenizer.decode(&ids(&prompt["greedy_ids"]), false);
            assert_eq!(text, prompt["greedy_text"], "{name}");
        }
    }
}

#[test]
fn malformed_tokenizers_are_errors_that_say_what_is_wrong() {
    let Some(checkpoints) = fixtures::find("malformed/checkpoints") else { return };
    for (name, words) in [
        ("tokenizer_bad_regex", "pre_tokenizer"),
        ("tokenizer_duplicate_ids", "share id 2"),
        ("tokenizer_id_huge", "4000000000"),
        ("tokenizer_merge_malformed", "is not a pair"),
        ("tokenizer_merge_unknown_token", "not in the vocabulary"),
        ("tokenizer_not_json", "not a tokenizer"),
        ("tokenizer_unknown_model", "Quantum"),
        ("tokenizer_vocab_is_list", "list"),
    ] {
        let result = Tokenizer::from_folder(&checkpoints.join(name));
        expect_error(name, result.map(|_| ()), words);
    }
}
