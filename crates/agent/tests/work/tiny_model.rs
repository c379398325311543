//! The built-in model with a longer context and a template that opens every answer's reasoning.

use gannet::{Builder, Engine};
use std::fs;
use std::path::Path;

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
/// Tokens of its context: enough for the tools and twenty turns.
const CONTEXT: usize = 16_384;
/// What the template writes before an answer.
const OPENING: &str = "{{- '<|im_start|>assistant\\n' }}";

/// Loads the model from `folder`, where its files are written.
pub fn load(folder: &Path, options: impl FnOnce(Builder) -> Builder) -> Engine {
    for entry in fs::read_dir(TINY).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    replace(&folder.join("config.json"), "\"max_position_embeddings\": 2048", |_| {
        format!("\"max_position_embeddings\": {CONTEXT}")
    });
    replace(&folder.join("chat_template.jinja"), OPENING, |opening| {
        opening.replace("\\n' }}", "\\n<think>\\n' }}")
    });
    fs::remove_file(folder.join("tiny-q8_0.gguf")).unwrap();
    let builder = Engine::builder().parallel(1).threads(2).context(CONTEXT);
    options(builder).load(folder).unwrap()
}

/// Replaces the last occurrence of `old` in a file.
fn replace(path: &Path, old: &str, new: impl FnOnce(&str) -> String) {
    let text = fs::read_to_string(path).unwrap();
    let at = text.rfind(old).unwrap_or_else(|| panic!("{} has no {old}", path.display()));
    let (head, tail) = (&text[..at], &text[at + old.len()..]);
    fs::write(path, format!("{head}{}{tail}", new(old))).unwrap();
}
