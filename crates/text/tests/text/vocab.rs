//! GGUF vocabularies against ids made by the original tokenizers.

use crate::common::json;
use formats::gguf::GgufFile;
use std::path::Path;
use text::{EncodeOptions, GgufOptions, Tokenizer};

const SEPARATOR: &str = "\n__ggml_vocab_test__\n";

fn load(path: &Path) -> Tokenizer {
    let file = GgufFile::open(path).unwrap();
    Tokenizer::from_gguf(&file, &GgufOptions::default()).unwrap()
}

fn check_vocab(path: &Path) {
    let with = |suffix: &str| {
        let name = format!("{}{suffix}", path.display());
        std::fs::read_to_string(&name).unwrap_or_else(|e| panic!("{name}: {e}"))
    };
    let (inputs, outputs) = (with(".inp"), with(".out"));
    let tokenizer = load(path);
    let inputs: Vec<&str> = inputs.split(SEPARATOR).collect();
    let outputs: Vec<&str> = outputs.lines().collect();
    assert!(outputs.len() > 20 && inputs.len() >= outputs.len());
    for (text, expected) in inputs.iter().zip(outputs) {
        let expected: Vec<u32> =
            expected.split_whitespace().map(|id| id.parse().unwrap()).collect();
        let ids = tokenizer.encode(text, EncodeOptions::default()).unwrap();
        assert_eq!(ids, expected, "{}: {text:?}", path.display());
        assert_eq!(tokenizer.decode(&ids, false), *text, "{}", path.display());
    }
}

#[test]
fn published_vocabularies_tokenize_as_published() {
    let Some(vocab) = fixtures::find("vocab") else { return };
    let mut count = 0;
    for entry in std::fs::read_dir(vocab).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "gguf") {
            check_vocab(&path);
            count += 1;
        }
    }
    assert!(count >= 4);
}

#[test]
fn gguf_twins_tokenize_as_their_checkpoints() {
    let Some(models) = fixtures::find("models") else { return };
    let Some(twins) = fixtures::find("gguf/models") else { return };
    let parse = EncodeOptions { add_special: true, parse_special: true };
    for entry in std::fs::read_dir(twins).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "gguf") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let checkpoint = name.rsplit_once('-').unwrap().0;
        let reference = json(&models.join(checkpoint).join("reference.json"));
        let tokenizer = load(&path);
        for case in reference["tokenizer_cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            if case["decoded"] != text {
                continue; // The checkpoint normalizes the text, GGUF vocabularies do not.
            }
            let expected: Vec<u32> =
                serde_json::from_value(case["ids_with_special"].clone()).unwrap();
            assert_eq!(tokenizer.encode(text, parse).unwrap(), expected, "{name}: {text:?}");
        }
    }
}
