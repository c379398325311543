//! Tokenizers, templates, grammars and the reading of model output, from outside the crate.

mod assets;
mod built_in;
mod common;
mod corpus;
mod gguf;
mod gguf_subwords;
mod grammar;
mod hostile;
mod long_words;
mod output;
mod stream;
mod templates;
mod tokenizer_json;
mod vocab;
