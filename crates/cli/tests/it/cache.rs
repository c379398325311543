//! `gannet cache` over folders that `gannet run` has filled.

use crate::gannet::{check_error, run, succeed};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A prompt of more than a hundred tokens.
fn prompt() -> String {
    "The capital of France is Paris, and the weather there is sunny. ".repeat(14)
}

/// Computes the prompt with a folder; returns the JSON of the answer.
fn compute(folder: &Path) -> Value {
    compute_with(folder, &[])
}

fn compute_with(folder: &Path, more: &[&str]) -> Value {
    let folder = folder.to_str().unwrap();
    let prompt = prompt();
    let stored = ["--kv-dir", folder, "--kv-dir-min-tokens", "32", "--kv-dir-write", "all"];
    let asked = ["run", "--json", "--seed", "3", "-n", "8", &prompt];
    serde_json::from_str(&succeed(&[&asked[..], &stored[..], more].concat())).unwrap()
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
    // A check of nothing is no success.
    check_error(&run(&["cache", "verify", "--kv-dir", dir]), "expected prefixes to check");

    check_error(&run(&["cache", "verify", "--kv-dir", "/no/such/folder"]), "no such folder");
    check_error(&run(&["cache", "list", "--kv-dir", "/no/such/folder"]), "no such folder");

    compute(folder.path());
    succeed(&["cache", "prune", "--older", "1h", "--kv-dir", dir]);
    succeed(&["cache", "prune", "--model", "another", "--kv-dir", dir]);
    assert!(!extents(folder.path()).is_empty());
    succeed(&["cache", "prune", "--to", "1", "--kv-dir", dir]);
    assert!(extents(folder.path()).is_empty());
    compute(folder.path());
    succeed(&["cache", "prune", "--all", "--kv-dir", dir]);
    assert!(extents(folder.path()).is_empty() && list(folder.path()).is_empty());
    check_error(&run(&["cache", "verify", "--kv-dir", dir]), "expected prefixes to check");
}

#[test]
fn files_that_cannot_be_read_are_reported_and_stay() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    compute(folder.path());
    let files = extents(folder.path());
    // A link to itself cannot be opened, by whomever.
    let name = files[0].file_name().unwrap().to_str().unwrap().replace("-0-", "-7-");
    let link = files[0].with_file_name(name);
    std::os::unix::fs::symlink(&link, &link).unwrap();
    std::fs::write(&files[0], "short").unwrap();
    let found = run(&["cache", "verify", "--remove", "--kv-dir", dir]);
    assert_eq!(found.code, Some(1));
    assert!(found.out.contains(link.to_str().unwrap()), "{found:?}");
    assert!(found.err.contains("not readable, and left as they are: 1"), "{found:?}");
    assert!(link.is_symlink() && !files[0].exists());
    // What is wrong with it remains to be seen.
    assert_eq!(run(&["cache", "verify", "--remove", "--kv-dir", dir]).code, Some(1));
}

/// Writes a key that only its owner may read.
fn write_key(folder: &Path, byte: u8) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join(format!("key-{byte}"));
    std::fs::write(&path, [byte; 32]).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn prefixes_under_a_key_are_found_with_it_alone() {
    let (folder, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dir = folder.path().to_str().unwrap();
    let [key, other] = [1, 2].map(|byte| write_key(own.path(), byte));
    let with = |key: &str| compute_with(folder.path(), &["--kv-dir-key", key]);
    let cached = |answer: &Value| answer["usage"]["cached_tokens"].as_u64().unwrap();
    let first = with(&key);
    let again = with(&key);
    assert!(cached(&first) == 0 && cached(&again) >= 96, "{again}");
    assert_eq!(first["text"], again["text"]);
    let files = extents(folder.path());
    for answer in [with(&other), compute(folder.path())] {
        assert_eq!((cached(&answer), &answer["text"]), (0, &first["text"]));
    }
    assert!(files.iter().all(|file| file.exists()));

    let listed = list(folder.path());
    let sealed: Vec<_> = listed.iter().map(|root| root["sealed"].as_bool().unwrap()).collect();
    assert_eq!(sealed.iter().filter(|sealed| **sealed).count(), 2);
    assert_eq!(sealed.len(), 3);
    assert!(listed.iter().all(|root| root["tokens"].as_u64().unwrap() >= 96), "{listed:?}");
    assert!(succeed(&["cache", "list", "--kv-dir", dir]).contains(", encrypted)"));
    let verified = run(&["cache", "verify", "--kv-dir", dir]);
    assert_eq!(verified.code, Some(0));
    assert!(verified.err.contains("encrypted, and checked without their key: 2"), "{verified:?}");
    let verified = run(&["cache", "verify", "--kv-dir", dir, "--kv-dir-key", &key]);
    assert!(verified.err.contains("encrypted, and checked without their key: 1"), "{verified:?}");

    let mut bytes = std::fs::read(&files[0]).unwrap();
    *bytes.last_chunk_mut::<5000>().unwrap().first_mut().unwrap() ^= 1;
    std::fs::write(&files[0], bytes).unwrap();
    assert_eq!(run(&["cache", "verify", "--kv-dir", dir]).code, Some(1));
    assert_eq!(with(&key)["text"], first["text"]);
}

#[test]
fn keys_are_refused_by_length_and_warned_of_by_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let key = write_key(folder.path(), 7);
    let dir = folder.path().join("kv");
    let asked = ["run", "Hi", "-n", "1", "--kv-dir", dir.to_str().unwrap(), "--kv-dir-key", &key];
    assert!(!run(&asked).err.contains("readable"));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    let warned = run(&asked);
    assert_eq!(warned.code, Some(0));
    assert!(warned.err.contains("is readable by others than its owner"), "{warned:?}");
    std::fs::write(&key, "secret").unwrap();
    check_error(&run(&asked), "expected 32 bytes, found 6");
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
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
    let digest = succeed(&["cache", "digest", "-m", model]);
    assert_eq!(digest.trim().len(), 64, "{digest}");
    assert_eq!(succeed(&["cache", "digest", "-m", model]), digest);
    assert_eq!(run(&["cache", "digest", "-m", "/nowhere.gguf"]).code, Some(1));
}
