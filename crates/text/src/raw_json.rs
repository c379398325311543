//! Types for reading `tokenizer.json`.
//!
//! Values that the model builder does not check (ids, merges, list or map) are checked here, so
//! that a broken file is an error and not a panic.

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::fmt;

/// The whole file.
#[derive(Debug, Deserialize)]
pub struct RawTokenizer {
    /// Tokens in addition to those of the model.
    #[serde(default)]
    pub added_tokens: Vec<RawAdded>,
    /// The stage that changes the text, or null.
    #[serde(default)]
    pub normalizer: Value,
    /// The stage that splits the text, or null.
    #[serde(default)]
    pub pre_tokenizer: Value,
    /// The stage that adds tokens around a text, or null.
    #[serde(default)]
    pub post_processor: Value,
    /// The stage that turns tokens into text, or null.
    #[serde(default)]
    pub decoder: Value,
    /// The vocabulary and its merges.
    pub model: RawModel,
}

/// One entry of `added_tokens`.
#[derive(Debug, Deserialize)]
pub struct RawAdded {
    /// The id.
    pub id: u32,
    /// The text.
    pub content: String,
    /// Whether the token matches only between characters that are not part of a word.
    #[serde(default)]
    pub single_word: bool,
    /// Whether a match takes the white space before it.
    #[serde(default)]
    pub lstrip: bool,
    /// Whether a match takes the white space after it.
    #[serde(default)]
    pub rstrip: bool,
    /// Whether the token is searched for in the normalized text.
    #[serde(default)]
    pub normalized: bool,
    /// Whether the token is a control token.
    #[serde(default)]
    pub special: bool,
}

/// The `model` object.
#[derive(Debug, Deserialize)]
pub struct RawModel {
    /// `BPE`, `Unigram` or `WordPiece`; BPE if absent.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The tokens.
    pub vocab: RawVocab,
    /// The merges of BPE, the first ones first.
    #[serde(default)]
    pub merges: Vec<RawMerge>,
    /// The token for unknown text, of BPE and WordPiece.
    pub unk_token: Option<String>,
    /// The id for unknown text, of Unigram.
    pub unk_id: Option<usize>,
    /// Beginning of tokens that continue a word.
    pub continuing_subword_prefix: Option<String>,
    /// Characters of the longest word that WordPiece splits.
    pub max_input_chars_per_word: Option<usize>,
    /// End of tokens that end a word.
    pub end_of_word_suffix: Option<String>,
    /// Whether adjacent unknown characters are one token.
    #[serde(default)]
    pub fuse_unk: bool,
    /// Whether unknown characters are spelled in byte tokens.
    #[serde(default)]
    pub byte_fallback: bool,
    /// Whether a piece that is a token is taken whole, without merges.
    #[serde(default)]
    pub ignore_merges: bool,
}

/// Token to id (BPE), or pieces with scores in order of ids (Unigram).
#[derive(Debug)]
pub enum RawVocab {
    /// Tokens with their ids.
    Ids(Vec<(String, u32)>),
    /// Pieces with their scores.
    Scores(Vec<(String, f64)>),
}

impl RawVocab {
    /// The number of tokens.
    pub(crate) fn len(&self) -> usize {
        match self {
            RawVocab::Ids(ids) => ids.len(),
            RawVocab::Scores(scores) => scores.len(),
        }
    }
}

/// The two sides of a merge.
#[derive(Debug)]
pub struct RawMerge(pub String, pub String);

impl<'de> Deserialize<'de> for RawVocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(VocabVisitor)
    }
}

struct VocabVisitor;

impl<'de> Visitor<'de> for VocabVisitor {
    type Value = RawVocab;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("\"vocab\" as an object of token ids or a list of [piece, score]")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawVocab, A::Error> {
        let mut ids = Vec::new();
        while let Some(entry) = map.next_entry()? {
            ids.push(entry);
        }
        Ok(RawVocab::Ids(ids))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawVocab, A::Error> {
        let mut scores = Vec::new();
        let wrong = |e| A::Error::custom(format!("\"vocab\" is a list: {e}"));
        while let Some(entry) = seq.next_element().map_err(wrong)? {
            scores.push(entry);
        }
        Ok(RawVocab::Scores(scores))
    }
}

impl<'de> Deserialize<'de> for RawMerge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MergeVisitor)
    }
}

struct MergeVisitor;

impl<'de> Visitor<'de> for MergeVisitor {
    type Value = RawMerge;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a merge as a pair of tokens")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<RawMerge, E> {
        RawMerge::parse(text).ok_or_else(|| E::custom(format!("merge \"{text}\" is not a pair")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawMerge, A::Error> {
        let mut sides = Vec::new();
        while let Some(side) = seq.next_element::<String>()? {
            sides.push(side);
        }
        match <[String; 2]>::try_from(sides) {
            Ok([left, right]) => Ok(RawMerge(left, right)),
            Err(other) => Err(A::Error::custom(format!("merge {other:?} is not a pair"))),
        }
    }
}

impl RawMerge {
    /// Reads `left right`, the form of `merges.txt` and of GGUF.
    pub fn parse(text: &str) -> Option<Self> {
        let (left, right) = text.split_once(' ')?;
        let valid = !left.is_empty() && !right.is_empty() && !right.contains(' ');
        valid.then(|| RawMerge(left.into(), right.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(merge: &str) -> String {
        serde_json::from_str::<RawMerge>(merge).unwrap_err().to_string()
    }

    #[test]
    fn merges_come_as_text_or_pair() {
        for text in [r#""a b""#, r#"["a", "b"]"#] {
            let RawMerge(left, right) = serde_json::from_str(text).unwrap();
            assert_eq!((left.as_str(), right.as_str()), ("a", "b"));
        }
    }

    #[test]
    fn other_merges_are_named_in_the_error() {
        assert!(message(r#""abc""#).contains("merge \"abc\" is not a pair"));
        assert!(message(r#"["a", "b", "c"]"#).contains("is not a pair"));
        assert!(message("3").contains("a pair of tokens"));
    }
}
