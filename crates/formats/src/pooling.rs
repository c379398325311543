//! Pooling of a checkpoint made for embeddings: `1_Pooling/config.json` of sentence-transformers,
//! or `<architecture>.pooling_type` in GGUF metadata.

use std::path::Path;

use crate::error::{Error, Result};
use crate::gguf::GgufFile;
use crate::json::{self, Object};

/// File name under a checkpoint's folder.
pub(crate) const POOLING_FILE: &str = "1_Pooling/config.json";

/// How the hidden states of a text's tokens become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean of all positions.
    Mean,
    /// The hidden state of the last token.
    Last,
}

impl Pooling {
    /// Reads the text of a [`POOLING_FILE`]; `path` names it in errors. `None` if it names no mode.
    pub(crate) fn from_json(text: &str, path: &Path) -> Result<Option<Self>> {
        let map = json::parse_object(text, path)?;
        let file = Object::new(path, &map);
        let mut found = None;
        for (key, pooling) in [
            ("pooling_mode_mean_tokens", Some(Self::Mean)),
            ("pooling_mode_lasttoken", Some(Self::Last)),
            ("pooling_mode_cls_token", None),
            ("pooling_mode_max_tokens", None),
            ("pooling_mode_mean_sqrt_len_tokens", None),
            ("pooling_mode_weightedmean_tokens", None),
        ] {
            if file.flag(key)? != Some(true) {
                continue;
            }
            if pooling.is_none() || found.is_some() {
                let problem = format!(
                    "expected pooling_mode_mean_tokens or pooling_mode_lasttoken alone, found {key}"
                );
                return Err(Error::file(path, problem));
            }
            found = pooling;
        }
        Ok(found)
    }

    /// Reads the metadata of a GGUF file.
    pub(crate) fn from_gguf(file: &GgufFile) -> Result<Option<Self>> {
        let metadata = file.metadata();
        let key = format!("{}.pooling_type", metadata.text("general.architecture")?);
        match metadata.opt_count(&key)? {
            None | Some(0) => Ok(None),
            Some(1) => Ok(Some(Self::Mean)),
            Some(3) => Ok(Some(Self::Last)),
            Some(other) => {
                Err(metadata
                    .error(&key, format!("expected 0, 1 (mean) or 3 (last), found {other}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<Option<Pooling>, &str>) {
        match (Pooling::from_json(text, Path::new(POOLING_FILE)), expected) {
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
        check(r#"{"pooling_mode_cls_token": true}"#, Err("pooling_mode_cls_token"));
        let both = r#"{"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": true}"#;
        check(both, Err("alone"));
        check(r#"{"pooling_mode_mean_tokens": 1}"#, Err("true or false"));
    }
}
