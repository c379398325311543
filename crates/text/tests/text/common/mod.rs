//! Readers of test data, for all integration tests.
#![allow(dead_code)]

use formats::gguf::{Array, GgufFile, GgufWriter, Value as GgufValue};
use serde_json::Value;
use std::path::{Path, PathBuf};
use text::{EncodeOptions, Tokenizer};

/// A file among this crate's own test data.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A JSON file.
pub fn json(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&bytes).unwrap()
}

/// Asserts that `result` is an error whose message has `words`.
pub fn expect_error(name: &str, result: text::Result<()>, words: &str) {
    let message = result.expect_err(name).to_string();
    assert!(message.contains(words), "{name}: {message}");
}

/// A list of strings.
pub fn strings<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> GgufValue {
    GgufValue::Array(Array::Strings(items.into_iter().collect()))
}

/// An open GGUF file with these entries and no tensors.
pub fn open(entries: Vec<(&str, GgufValue)>) -> GgufFile {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vocab.gguf");
    let mut writer = GgufWriter::new();
    entries.into_iter().for_each(|(key, value)| writer.set(key, value));
    writer.create(&path).unwrap().finish().unwrap();
    GgufFile::open(&path).unwrap()
}

/// The entries with another value of `key`.
pub fn with(
    mut entries: Vec<(&'static str, GgufValue)>,
    key: &'static str,
    value: GgufValue,
) -> Vec<(&'static str, GgufValue)> {
    entries.retain(|(k, _)| *k != key);
    entries.push((key, value));
    entries
}

/// The tokens of a text, separated by spaces.
pub fn shown(tokenizer: &Tokenizer, text: &str, add_special: bool, parse_special: bool) -> String {
    let ids = tokenizer.encode(text, EncodeOptions { add_special, parse_special }).unwrap();
    ids.iter().map(|&id| tokenizer.id_to_token(id).unwrap()).collect::<Vec<_>>().join(" ")
}
