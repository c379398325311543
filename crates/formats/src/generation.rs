//! `generation_config.json`: how the makers of a checkpoint want it sampled.

use std::path::Path;

use crate::error::Result;
use crate::json::{self, Object};

/// File name beside config.json.
pub const GENERATION_FILE: &str = "generation_config.json";

/// Sampling defaults of a checkpoint; `None` where it does not say.
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
}

impl GenerationDefaults {
    /// Reads the text of a `generation_config.json`; `path` names it in errors.
    pub fn from_json(text: &str, path: &Path) -> Result<Self> {
        let map = json::parse_object(text, path)?;
        let file = Object::new(path, &map);
        Ok(Self {
            do_sample: file.flag("do_sample")?,
            temperature: not_negative(file, "temperature")?,
            top_k: file.count("top_k", u32::MAX as usize)?,
            top_p: not_negative(file, "top_p")?,
            min_p: not_negative(file, "min_p")?,
            typical_p: not_negative(file, "typical_p")?,
            repetition_penalty: not_negative(file, "repetition_penalty")?,
            max_new_tokens: file.count("max_new_tokens", usize::MAX)?,
            eos: file.ids("eos_token_id")?,
            bos: file.ids("bos_token_id")?.first().copied(),
            pad: file.ids("pad_token_id")?.first().copied(),
        })
    }
}

fn not_negative(file: Object, key: &str) -> Result<Option<f32>> {
    match file.number(key)? {
        Some(number) if number < 0.0 => {
            Err(file.error(key, format!("expected a number from 0, found {number}")))
        }
        other => Ok(other),
    }
}
