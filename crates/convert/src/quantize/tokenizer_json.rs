//! The parts of a `tokenizer.json` that vocabularies of GGUF files are made from.

use serde::Deserialize;
use serde_json::Value as Json;
use std::path::Path;
use text::TextAssets;

/// What there is to write.
#[derive(Debug)]
pub(super) struct VocabularySource<'a> {
    pub assets: &'a TextAssets,
    /// The tokenizer.json that the assets were read from.
    pub file: &'a Path,
    /// Rows of the embedding: that many tokens are written.
    pub rows: usize,
    /// Tokens that end an answer.
    pub eos: &'a [u32],
    /// The pre-tokenizer that a person named.
    pub pre: Option<&'a str>,
}

/// The parts of a tokenizer.json that the assets do not give back.
#[derive(Debug, Deserialize)]
pub(super) struct TokenizerJson {
    #[serde(default)]
    pub normalizer: Json,
    #[serde(default)]
    pub pre_tokenizer: Json,
    pub model: TokenizerModel,
}

#[derive(Debug, Deserialize)]
pub(super) struct TokenizerModel {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    #[serde(default)]
    pub merges: Vec<Merge>,
    #[serde(default)]
    pub byte_fallback: bool,
    #[serde(default)]
    pub ignore_merges: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Merge {
    Text(String),
    Pair(String, String),
}

impl Merge {
    /// Both sides; the readers of the assets have refused merges without two.
    pub fn sides(&self) -> (&str, &str) {
        match self {
            Self::Text(text) => text.split_once(' ').unwrap_or((text, "")),
            Self::Pair(left, right) => (left, right),
        }
    }
}
