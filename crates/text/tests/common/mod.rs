//! What the integration tests share: finding fixtures and reading them.
#![allow(dead_code, clippy::print_stderr)]

use serde_json::Value;
use std::path::{Path, PathBuf};

/// The optional folder of large fixtures, or `None` with a note that the test is skipped.
pub fn shared_fixtures() -> Option<PathBuf> {
    let root = std::env::var_os("GANNET_SHARED").map(PathBuf::from);
    let root =
        root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    let fixtures = root.join("fixtures");
    if !fixtures.is_dir() {
        eprintln!("skipped: no fixtures at {}", fixtures.display());
        return None;
    }
    Some(fixtures)
}

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
