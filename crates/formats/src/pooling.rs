//! Pooling of a checkpoint made for embeddings: `1_Pooling/config.json` of sentence-transformers,
//! or `<architecture>.pooling_type` in GGUF metadata.

use std::path::Path;
use std::str::FromStr;

use serde::Serialize;

use crate::error::{Error, Result, shown};
use crate::gguf::{GgufFile, Metadata};
use crate::json::{self, Object};

/// How the hidden states of a text's tokens become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Pooling {
    /// The mean of all positions.
    Mean,
    /// The hidden state of the first token.
    Cls,
    /// The hidden state of the last token.
    Last,
    /// The largest value of all positions, value by value.
    Max,
    /// The sum of all positions divided by the square root of their number.
    MeanSqrt,
    /// The mean of all positions, each with its number, counted from 1, as its weight.
    WeightedMean,
}

/// The number that stands for a head in GGUF metadata.
pub(crate) const RANK: usize = 4;

impl Pooling {
    /// Numbers in GGUF metadata.
    const GGUF: [(Self, usize); 3] = [(Self::Mean, 1), (Self::Cls, 2), (Self::Last, 3)];

    /// All, each with its name and the flag of sentence-transformers.
    const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::Mean, "mean", "pooling_mode_mean_tokens"),
        (Self::Cls, "cls", "pooling_mode_cls_token"),
        (Self::Last, "last", "pooling_mode_lasttoken"),
        (Self::Max, "max", "pooling_mode_max_tokens"),
        (Self::MeanSqrt, "mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"),
        (Self::WeightedMean, "weightedmean", "pooling_mode_weightedmean_tokens"),
    ];

    /// The names of all.
    pub fn names() -> [&'static str; 6] {
        Self::ALL.map(|(_, name, _)| name)
    }

    /// Reads the text of the configuration of a pooling module; `path` names it in errors. `None`
    /// if it names no mode.
    pub(crate) fn from_json(text: &str, path: &Path) -> Result<Option<Self>> {
        let map = json::parse_object(text, path)?;
        let file = Object::new(path, &map);
        if let Some(name) = file.text("pooling_mode")? {
            let problem = |expected| format!("{expected}; found {}", shown(name));
            let pooling = name.parse().map_err(problem);
            return pooling.map(Some).map_err(|problem| file.error("pooling_mode", problem));
        }
        let mut found = None;
        for (pooling, _, key) in Self::ALL {
            if file.flag(key)? != Some(true) {
                continue;
            }
            if let Some((_, first)) = found {
                let problem = format!("expected one mode alone, found {first} and {key}");
                return Err(Error::file(path, problem));
            }
            found = Some((pooling, key));
        }
        Ok(found.map(|(pooling, _)| pooling))
    }

    /// Reads the metadata of a GGUF file.
    pub(crate) fn from_gguf(file: &GgufFile) -> Result<Option<Self>> {
        let metadata = file.metadata();
        let architecture = metadata.text("general.architecture")?;
        Self::from_gguf_key(metadata, &format!("{architecture}.pooling_type"))
    }

    /// Reads a key of GGUF metadata. Rerankers (4) have a head, which pools in its own way.
    pub(crate) fn from_gguf_key(metadata: &Metadata, key: &str) -> Result<Option<Self>> {
        let Some(number) = metadata.opt_count(key)? else { return Ok(None) };
        let known = Self::GGUF.iter().find(|(_, known)| *known == number);
        match (known, number) {
            (Some((pooling, _)), _) => Ok(Some(*pooling)),
            (None, 0 | RANK) => Ok(None),
            (None, other) => {
                let expected = "expected 0, 1 (mean), 2 (cls), 3 (last) or 4 (rank)";
                Err(metadata.error(key, format!("{expected}, found {other}")))
            }
        }
    }

    /// The number in GGUF metadata, if it has one.
    pub(crate) fn gguf_number(self) -> Option<usize> {
        Self::GGUF.iter().find(|(pooling, _)| *pooling == self).map(|(_, number)| *number)
    }
}

impl FromStr for Pooling {
    type Err = String;

    /// The pooling of this name; `lasttoken`, the name of sentence-transformers, stands for `last`.
    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let name = if name == "lasttoken" { "last" } else { name };
        let found = Self::ALL.iter().find(|(_, known, _)| *known == name);
        found
            .map(|(pooling, ..)| *pooling)
            .ok_or_else(|| format!("expected one of {}", Self::names().join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<Option<Pooling>, &str>) {
        match (Pooling::from_json(text, Path::new("1_Pooling/config.json")), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
            (Err(error), Err(word)) => assert!(error.to_string().contains(word), "{error}"),
            (found, expected) => panic!("{text}: expected {expected:?}, found {found:?}"),
        }
    }

    #[test]
    fn a_mode_is_read_and_one_that_cannot_be_followed_is_an_error() {
        let mean = r#"{"word_embedding_dimension": 8, "pooling_mode_mean_tokens": true,
                       "pooling_mode_lasttoken": false}"#;
        check(mean, Ok(Some(Pooling::Mean)));
        check(r#"{"pooling_mode_lasttoken": true}"#, Ok(Some(Pooling::Last)));
        check("{}", Ok(None));
        check(r#"{"pooling_mode_cls_token": true}"#, Ok(Some(Pooling::Cls)));
        check(r#"{"pooling_mode": "weightedmean"}"#, Ok(Some(Pooling::WeightedMean)));
        check(r#"{"pooling_mode": "lasttoken"}"#, Ok(Some(Pooling::Last)));
        check(r#"{"pooling_mode": "median"}"#, Err("mean, cls, last, max"));
        let both = r#"{"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": true}"#;
        check(both, Err("alone"));
        check(r#"{"pooling_mode_mean_tokens": 1}"#, Err("true or false"));
    }
}
