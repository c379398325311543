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
pub(crate) struct RawTokenizer {
    #[serde(default)]
    pub added_tokens: Vec<RawAdded>,
    #[serde(default)]
    pub normalizer: Value,
    #[serde(default)]
    pub pre_tokenizer: Value,
    #[serde(default)]
    pub post_processor: Value,
    #[serde(default)]
    pub decoder: Value,
    pub model: RawModel,
}

/// One entry of `added_tokens`.
#[derive(Debug, Deserialize)]
pub(crate) struct RawAdded {
    pub id: u32,
    pub content: String,
    #[serde(default)]
    pub single_word: bool,
    #[serde(default)]
    pub lstrip: bool,
    #[serde(default)]
    pub rstrip: bool,
    #[serde(default)]
    pub normalized: bool,
    #[serde(default)]
    pub special: bool,
}

/// The `model` object.
#[derive(Debug, Deserialize)]
pub(crate) struct RawModel {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub vocab: RawVocab,
    #[serde(default)]
    pub merges: Vec<RawMerge>,
    pub unk_token: Option<String>,
    pub unk_id: Option<usize>,
    pub continuing_subword_prefix: Option<String>,
    pub end_of_word_suffix: Option<String>,
    #[serde(default)]
    pub fuse_unk: bool,
    #[serde(default)]
    pub byte_fallback: bool,
    #[serde(default)]
    pub ignore_merges: bool,
}

/// Token to id (BPE), or pieces with scores in order of ids (Unigram).
#[derive(Debug)]
pub(crate) enum RawVocab {
    Ids(Vec<(String, u32)>),
    Scores(Vec<(String, f64)>),
}

/// The two sides of a merge.
#[derive(Debug)]
pub(crate) struct RawMerge(pub String, pub String);

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
        loop {
            match seq.next_element() {
                Ok(Some(entry)) => scores.push(entry),
                Ok(None) => return Ok(RawVocab::Scores(scores)),
                Err(e) => return Err(A::Error::custom(format!("\"vocab\" is a list: {e}"))),
            }
        }
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
