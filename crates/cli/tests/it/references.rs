//! Every reference checkpoint of a supported architecture agrees with its reference outputs.

use crate::gannet::succeed;
use std::path::Path;

/// What cannot be run yet.
const UNSUPPORTED: &[&str] = &["deepseek_v4", "qwen3_next"];

fn verify(model: &Path, reference: &Path) {
    let paths = [model, reference].map(|path| path.to_str().unwrap());
    succeed(&["verify", paths[0], "--reference", paths[1], "--mode", "exact"]);
}

#[test]
fn checkpoints_agree_with_hugging_face() {
    let Some(models) = fixtures::find("models") else { return };
    let mut verified = 0;
    for entry in models.read_dir().unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        if UNSUPPORTED.iter().all(|family| !name.starts_with(family)) {
            verify(&folder, &folder.join("reference.json"));
            verified += 1;
        }
    }
    assert!(verified >= 14, "{verified} checkpoints");
}

#[test]
fn gguf_files_agree_with_what_they_hold() {
    let Some(models) = fixtures::find("gguf/models") else { return };
    let mut verified = 0;
    for entry in models.read_dir().unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "gguf") {
            verify(&file, &file.with_extension("reference.json"));
            verified += 1;
        }
    }
    assert!(verified >= 12, "{verified} files");
}
