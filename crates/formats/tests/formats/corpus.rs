//! The seeds and finds of the fuzzers, replayed: nothing panics, valid seeds still load.

use std::path::{Path, PathBuf};

use formats::imatrix::Imatrix;
use formats::{Checkpoint, GenerationDefaults, ModelConfig, OpenOptions, gguf, safetensors};

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap();
    let files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    assert!(files.len() > 10, "{} is too small", folder.display());
    files
}

/// Whether the seed is one that must load.
fn is_valid(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_string_lossy();
    ["valid", "llama3", "mistral", "qwen", "deepseek"].iter().any(|start| name.starts_with(start))
}

#[test]
fn gguf_seeds_load_or_give_errors() {
    for (path, bytes) in corpus("gguf") {
        let parsed = gguf::parse(&bytes, &path);
        assert_eq!(parsed.is_ok() && is_valid(&path), is_valid(&path), "{parsed:?}");
        let opened = Checkpoint::open(&path, &OpenOptions::default());
        assert_eq!(opened.is_ok(), is_valid(&path), "{}: {:?}", path.display(), opened.err());
    }
}

#[test]
fn safetensors_seeds_load_or_give_errors() {
    for (path, bytes) in corpus("safetensors") {
        let parsed = safetensors::parse(&bytes, &path);
        assert_eq!(parsed.is_ok(), is_valid(&path), "{parsed:?}");
    }
}

#[test]
fn imatrix_seeds_load_or_give_errors() {
    for (path, _) in corpus("imatrix") {
        let opened = Imatrix::open(&path);
        assert_eq!(opened.is_ok(), is_valid(&path), "{}: {:?}", path.display(), opened.err());
    }
}

#[test]
fn config_seeds_load_or_give_errors() {
    for (path, bytes) in corpus("config") {
        let text = String::from_utf8_lossy(&bytes);
        let _ = GenerationDefaults::from_json(&text, &path);
        let config = ModelConfig::from_hf_json(&text, &path);
        assert!(config.is_ok() || !is_valid(&path), "{config:?}");
    }
}
