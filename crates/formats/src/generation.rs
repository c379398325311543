//! The sampling defaults of a checkpoint: its `generation_config.json`, or keys of a GGUF file.

use std::path::Path;

use crate::error::Result;
use crate::gguf::Metadata;
use crate::json::{self, Object};

/// File name beside config.json.
pub const GENERATION_FILE: &str = "generation_config.json";

/// Sampling defaults of a checkpoint; `None` for absent fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// Whether to sample; greedy otherwise.
    pub do_sample: Option<bool>,
    /// Divisor of the logits.
    pub temperature: Option<f32>,
    /// Candidates kept by rank.
    pub top_k: Option<usize>,
    /// Candidates kept by cumulated probability.
    pub top_p: Option<f32>,
    /// Candidates kept by probability relative to the best.
    pub min_p: Option<f32>,
    /// Candidates kept by closeness to the expected surprise.
    pub typical_p: Option<f32>,
    /// Divisor (or factor) of the logits of tokens seen before.
    pub repetition_penalty: Option<f32>,
    /// Most tokens to generate.
    pub max_new_tokens: Option<usize>,
    /// Ids that end a generation; empty where the file names none.
    pub eos: Vec<u32>,
    /// Id that begins a text.
    pub bos: Option<u32>,
    /// Padding.
    pub pad: Option<u32>,
    /// Ids that are never generated.
    pub suppressed: Vec<u32>,
}

impl GenerationDefaults {
    /// Reads the text of a `generation_config.json`; `path` names it in errors.
    ///
    /// # Errors
    /// If the text is not a JSON object or a field has the wrong type or range.
    pub fn from_json(text: &str, path: &Path) -> Result<Self> {
        let map = json::parse_object(text, path)?;
        let file = Object::new(path, &map);
        Ok(Self {
            do_sample: file.flag("do_sample")?,
            temperature: checked(file, "temperature", "a number from 0", |it| it >= 0.0)?,
            // Files for vLLM write -1 for all candidates.
            top_k: match file.whole("top_k") {
                Some(-1) => Some(0),
                _ => file.count("top_k", u32::MAX as usize)?,
            },
            top_p: share(file, "top_p")?,
            min_p: share(file, "min_p")?,
            typical_p: share(file, "typical_p")?,
            repetition_penalty: file.above_zero("repetition_penalty")?,
            max_new_tokens: file.count("max_new_tokens", usize::MAX)?,
            eos: file.ids("eos_token_id")?,
            bos: file.ids("bos_token_id")?.first().copied(),
            pad: file.padding("pad_token_id")?,
            suppressed: file.known_ids("suppress_tokens"),
        })
    }

    /// Reads what a GGUF file states, which is the ids that are never generated.
    ///
    /// # Errors
    /// If they are no list of integers.
    pub(crate) fn from_gguf(metadata: &Metadata) -> Result<Self> {
        let ids = metadata.opt_ints("tokenizer.ggml.suppress_tokens")?.unwrap_or_default();
        let suppressed = ids.into_iter().filter_map(|id| u32::try_from(id).ok()).collect();
        Ok(Self { suppressed, ..Self::default() })
    }
}

fn share(file: Object, key: &str) -> Result<Option<f32>> {
    checked(file, key, "a number from 0 to 1", |number| (0.0..=1.0).contains(&number))
}

fn checked(
    file: Object,
    key: &str,
    expected: &str,
    holds: impl Fn(f32) -> bool,
) -> Result<Option<f32>> {
    match file.number(key)? {
        Some(number) if !holds(number) => {
            Err(file.error(key, format!("expected {expected}, found {number}")))
        }
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<GenerationDefaults, &str>) {
        let read = GenerationDefaults::from_json(text, Path::new(GENERATION_FILE));
        match (read, expected) {
            (Ok(read), Ok(expected)) => assert_eq!(read, expected, "{text}"),
            (Err(error), Err(field)) => {
                let message = error.to_string();
                assert!(message.contains(field) && message.contains("expected"), "{message}");
            }
            (found, expected) => panic!("{text}: expected {expected:?}, found {found:?}"),
        }
    }

    #[test]
    fn what_the_file_does_not_say_stays_open() {
        let none = GenerationDefaults::default();
        check("{}", Ok(none.clone()));
        let nulls = r#"{"temperature": null, "pad_token_id": -1, "transformers_version": "5"}"#;
        check(nulls, Ok(none.clone()));
        let some = GenerationDefaults { eos: vec![2, 3], top_p: Some(1.0), ..none };
        check(r#"{"eos_token_id": [2, 3], "top_p": 1}"#, Ok(some));
        let all = GenerationDefaults { top_k: Some(0), suppressed: vec![7], ..Default::default() };
        check(r#"{"top_k": -1, "suppress_tokens": [7, -1]}"#, Ok(all));
    }

    #[test]
    fn values_that_no_sampler_could_follow_are_refused_by_name() {
        check(r#"{"repetition_penalty": 0}"#, Err("repetition_penalty"));
        check(r#"{"top_p": 1.5}"#, Err("top_p"));
        check(r#"{"min_p": -0.1}"#, Err("min_p"));
        check(r#"{"temperature": "hot"}"#, Err("temperature"));
        check(r#"{"top_k": -2}"#, Err("top_k"));
        check(r#"{"do_sample": 1}"#, Err("do_sample"));
    }
}
