//! `tokenizer.json` tokenizers against ids and decodings made by Hugging Face.

mod common;

use common::{data, expect_error, json};
use serde_json::Value;
use std::path::Path;
use text::{EncodeOptions, Tokenizer};

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
        let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
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
