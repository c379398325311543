//! Broken models give one clear error, soon.

use crate::gannet::{Ended, check_error, command};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time each file may take, and what starting the process on a busy machine may add.
const LIMIT: Duration = Duration::from_secs(2);

/// Cases with a note leave it to the loader whether they are errors.
fn check(path: &Path, may_load: bool) {
    let begun = Instant::now();
    let args = ["run", "x", "-n", "1", "-m", path.to_str().unwrap()];
    let ended: Ended = command().args(args).output().unwrap().into();
    assert!(begun.elapsed() < LIMIT, "{}: {:?}", path.display(), begun.elapsed());
    if !(may_load && ended.code == Some(0)) {
        check_error(&ended, "");
    }
    assert!(!ended.err.contains("internal error"), "{}: {}", path.display(), ended.err);
}

#[test]
fn every_malformed_file_ends_with_one_error_in_time() {
    let Some(folder) = fixtures::find("malformed") else { return };
    let manifest = std::fs::read_to_string(folder.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    let cases = manifest["cases"].as_array().unwrap();
    assert!(cases.len() > 50);
    for case in cases {
        check(&folder.join(case["path"].as_str().unwrap()), case["note"].is_string());
    }
}
