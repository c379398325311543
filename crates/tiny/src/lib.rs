//! The files of the built-in model, as part of the program.
//!
//! Invariant: depends on nothing, and every file is whole and below the folder of this crate.

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../model/", $name)))),*]
    };
}

/// The names of the model's files and what the files hold.
pub static FILES: &[(&str, &[u8])] = files![
    "model.safetensors",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
];
