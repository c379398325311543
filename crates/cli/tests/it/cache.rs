//! `gannet cache` over folders that `gannet run` has filled.

use crate::gannet::{run, succeed};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A prompt of more than a hundred tokens.
fn prompt() -> String {
    "The capital of France is Paris, and the weather there is sunny. ".repeat(14)
}

/// Computes the prompt with a folder; returns the JSON of the answer.
fn compute(folder: &Path) -> Value {
    let folder = folder.to_str().unwrap();
    let prompt = prompt();
    let stored = ["--kv-dir", folder, "--kv-dir-min-tokens", "32", "--kv-dir-write", "all"];
    let asked = ["run", "--json", "--seed", "3", "-n", "8", &prompt];
    serde_json::from_str(&succeed(&[&asked[..], &stored[..]].concat())).unwrap()
}

fn list(folder: &Path) -> Vec<Value> {
    let listed = succeed(&["cache", "list", "--json", "--kv-dir", folder.to_str().unwrap()]);
    serde_json::from_str(&listed).unwrap()
}

/// The extents of a folder.
fn extents(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        let is_extent = path.extension().is_some_and(|name| name == "gkv");
        return is_extent.then(|| path.to_owned()).into_iter().collect();
    }
    path.read_dir().unwrap().flat_map(|entry| extents(&entry.unwrap().path())).collect()
}

#[test]
fn prefixes_are_found_by_the_next_run_listed_checked_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    assert!(list(folder.path()).is_empty());
    let first = compute(folder.path());
    let again = compute(folder.path());
    assert_eq!(first["text"], again["text"]);
    let listed = list(folder.path());
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["about"]["settings"]["mode"], "fast");
    assert!(listed[0]["tokens"].as_u64().unwrap() >= 96, "{listed:?}");
    assert!(succeed(&["cache", "list", "--kv-dir", dir]).contains("tokens"));
    assert_eq!(succeed(&["cache", "path", "--kv-dir", dir]).trim(), dir);
    succeed(&["cache", "verify", "--kv-dir", dir]);

    let damaged = extents(folder.path()).remove(0);
    let mut bytes = std::fs::read(&damaged).unwrap();
    *bytes.get_mut(5000).unwrap() ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    let found = run(&["cache", "verify", "--kv-dir", dir]);
    assert_eq!(found.code, Some(1));
    assert!(found.out.contains(damaged.to_str().unwrap()), "{found:?}");
    assert_eq!(run(&["cache", "verify", "--remove", "--kv-dir", dir]).code, Some(1));
    assert!(!damaged.exists());
    succeed(&["cache", "verify", "--kv-dir", dir]);

    compute(folder.path());
    succeed(&["cache", "prune", "--older", "1h", "--kv-dir", dir]);
    succeed(&["cache", "prune", "--model", "another", "--kv-dir", dir]);
    assert!(!extents(folder.path()).is_empty());
    succeed(&["cache", "prune", "--to", "1", "--kv-dir", dir]);
    assert!(extents(folder.path()).is_empty());
    compute(folder.path());
    succeed(&["cache", "prune", "--all", "--kv-dir", dir]);
    assert!(extents(folder.path()).is_empty());
}

#[test]
fn wrong_arguments_are_named() {
    for args in [&["cache", "prune"][..], &["cache", "prune", "--all", "--to", "1G"]] {
        assert_eq!(run(args).code, Some(2), "{args:?}");
    }
    let age = run(&["cache", "prune", "--older", "7 weeks"]);
    assert!(age.err.contains("expected an age such as 90m, 12h or 7d"), "{age:?}");
    let root = run(&["cache", "prune", "--root", "xyz"]);
    assert!(root.err.contains("32 lower-case hexadecimal digits"), "{root:?}");
}

#[test]
fn a_digest_is_that_of_the_weights() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tiny");
    let digest = succeed(&["cache", "digest", "-m", model]);
    assert_eq!(digest.trim().len(), 64, "{digest}");
    assert_eq!(succeed(&["cache", "digest", "-m", model]), digest);
    assert_eq!(run(&["cache", "digest", "-m", "/nowhere.gguf"]).code, Some(1));
}
