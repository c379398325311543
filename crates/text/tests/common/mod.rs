//! Readers of test data, for all integration tests.
#![allow(dead_code)]

use serde_json::Value;
use std::path::{Path, PathBuf};

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
