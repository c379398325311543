//! The parts of a `tokenizer.json` that vocabularies of GGUF files are made from.

use serde::Deserialize;
use serde_json::Value as Json;
use std::path::Path;
use text::TextAssets;

/// The source of a vocabulary.
#[derive(Debug)]
pub(super) struct VocabularySource<'a> {
    pub assets: &'a TextAssets,
    /// The tokenizer.json that the assets were read from.
    pub file: &'a Path,
    /// Rows of the embedding: that many tokens are written.
    pub rows: usize,
    /// Tokens that end an answer.
    pub eos: &'a [u32],
    /// The pre-tokenizer that the user named.
    pub pre: Option<&'a str>,
}

/// The parts of a tokenizer.json that [`TextAssets`] does not keep.
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
    /// Both sides of the merge. The reader of the assets has checked that there are two.
    pub fn sides(&self) -> (&str, &str) {
        match self {
            Self::Text(text) => text.split_once(' ').unwrap_or((text, "")),
            Self::Pair(left, right) => (left, right),
        }
    }
}
