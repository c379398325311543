//! The reference file: outputs of another implementation, and the tolerances.

use anyhow::{Context, Result, anyhow, bail};
use backend::Mode;
use formats::Pooling;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// A reference file, written by `make_reference.py`. Unknown fields are ignored.
#[derive(Debug, Deserialize)]
pub(super) struct Reference {
    /// `f32_` and `bf16_max_abs` and `_min_cosine`, where they differ from the usual ones.
    #[serde(default)]
    tolerance: HashMap<String, f64>,
    /// Prompts of a model that generates.
    #[serde(default)]
    pub prompts: Vec<ReferencePrompt>,
    /// Texts and their vectors.
    #[serde(default)]
    pub texts: Vec<ReferenceText>,
    /// How states become a vector; `None` for what the checkpoint says.
    pooling: Option<String>,
    /// Whether vectors have the length 1, as they do by default.
    pub normalize: Option<bool>,
    /// Pairs of texts and their scores.
    #[serde(default)]
    pub pairs: Vec<ReferencePair>,
    #[serde(default)]
    pub chat: Vec<ChatCase>,
    #[serde(default)]
    pub tokenizer_cases: Vec<TokenizerCase>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ReferencePrompt {
    pub text: Option<String>,
    #[serde(default = "yes")]
    pub add_special_tokens: bool,
    pub input_ids: Vec<u32>,
    /// All logits at the last position; none in the file of a head that drafts tokens.
    #[serde(default)]
    pub last_logits: Vec<f32>,
    /// The five best ids at every position.
    #[serde(default)]
    pub top5_ids: Vec<Vec<u32>>,
    /// The five best ids at the last position, where `top5_ids` is not given.
    pub top5_ids_last: Option<Vec<u32>>,
    #[serde(default)]
    pub greedy_ids: Vec<u32>,
    /// The best candidates at each greedy step.
    #[serde(default)]
    pub greedy_top5: Vec<Candidates>,
    pub mean_nll: Option<f64>,
    /// What layers of multi-token prediction draft.
    pub draft: Option<ReferenceDraft>,
    /// What the head drafts that the file is of.
    #[serde(flatten)]
    pub of_head: Option<ReferenceDraft>,
}

/// Tokens that are drafted after a prompt and the next token.
#[derive(Debug, Deserialize)]
pub(super) struct ReferenceDraft {
    /// Maximum difference of a logit in exact mode.
    pub f32_max_abs: f64,
    /// One after the other.
    pub steps: Vec<DraftStep>,
}

/// A token that is drafted.
#[derive(Debug, Deserialize)]
pub(super) struct DraftStep {
    /// The token before it: the next token, or the one drafted last.
    pub input_token: u32,
    /// The logits of all words that are drafted.
    pub logits: Vec<f32>,
    /// The drafted token, and by how much its logit is the largest.
    pub id: Option<u32>,
    #[serde(default)]
    pub gap: f64,
}

/// A text and its vector.
#[derive(Debug, Deserialize)]
pub(super) struct ReferenceText {
    pub text: Option<String>,
    pub input_ids: Vec<u32>,
    pub token_type_ids: Option<Vec<u32>>,
    pub embedding: Vec<f32>,
}

/// A query with a document, and the logit of the first label.
#[derive(Debug, Deserialize)]
pub(super) struct ReferencePair {
    pub query: Option<String>,
    pub document: Option<String>,
    pub input_ids: Vec<u32>,
    pub token_type_ids: Option<Vec<u32>>,
    pub score: f64,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
pub(super) struct Candidates {
    pub logits: Vec<f64>,
}

/// Any further members (`tools`, `enable_thinking` and so on) are arguments of the template.
#[derive(Debug, Deserialize)]
pub(super) struct ChatCase {
    pub rendered: Option<String>,
    pub ids: Option<Vec<u32>>,
    #[serde(flatten)]
    pub input: serde_json::Map<String, Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TokenizerCase {
    pub text: String,
    pub ids: Vec<u32>,
    pub ids_with_special: Option<Vec<u32>>,
    pub decoded: Option<String>,
    pub decoded_skip_special: Option<String>,
}

/// The tolerances of a compute mode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Maximum difference of a value, where single values are compared.
    pub max_abs: Option<f64>,
    /// Minimum cosine of the last logits, or of vectors.
    pub min_cosine: f64,
    /// Differences between candidates below which their order may differ, and between scores.
    pub gap: f64,
    /// Maximum difference of the mean NLL.
    pub mean_nll: Option<f64>,
}

impl Reference {
    pub fn open(path: &Path) -> Result<Self> {
        let text = crate::input::read_path(path)?;
        let reference: Self = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a reference file", path.display()))?;
        let cases = [reference.prompts.len(), reference.texts.len(), reference.pairs.len()];
        if cases == [0; 3] {
            bail!("{}: expected prompts, texts or pairs, found none", path.display());
        }
        Ok(reference)
    }

    /// Whether the file has tokenizer or chat cases.
    pub fn has_text_cases(&self) -> bool {
        !self.chat.is_empty()
            || !self.tokenizer_cases.is_empty()
            || self.prompts.iter().any(|p| p.text.is_some())
            || self.texts.iter().any(|text| text.text.is_some())
            || self.pairs.iter().any(|pair| pair.query.is_some())
    }

    /// How states become a vector, where the file says.
    pub fn pooling(&self) -> Result<Option<Pooling>> {
        let Some(name) = &self.pooling else { return Ok(None) };
        let pooling = name.parse();
        pooling.map(Some).map_err(|expected| anyhow!("pooling: {expected}; found {name}"))
    }

    /// The tolerances of logits.
    pub fn bounds(&self, mode: Mode) -> Bounds {
        self.bounds_or(mode, [1e-3, 1.5])
    }

    /// The tolerances of vectors and scores of texts.
    pub fn text_bounds(&self, mode: Mode) -> Bounds {
        self.bounds_or(mode, [1e-5, 0.1])
    }

    /// The tolerances of `mode`, with the maximum difference of a value in exact and in fast mode
    /// where the file has none.
    fn bounds_or(&self, mode: Mode, [exact_gap, fast_gap]: [f64; 2]) -> Bounds {
        let given = |name: &str, usual| self.tolerance.get(name).copied().unwrap_or(usual);
        let (gap, min_cosine) = match mode {
            Mode::Exact => (given("f32_max_abs", exact_gap), given("f32_min_cosine", 0.999_999)),
            Mode::Fast => (given("bf16_max_abs", fast_gap), given("bf16_min_cosine", 0.998)),
        };
        let exact = mode == Mode::Exact;
        Bounds { max_abs: exact.then_some(gap), min_cosine, gap, mean_nll: exact.then_some(1e-4) }
    }
}

impl ReferencePrompt {
    /// Refuses ids and logits that cannot belong to a model of `vocab` tokens.
    pub fn check(&self, index: usize, vocab: usize) -> Result<()> {
        let at = format!("prompts[{index}]");
        if self.input_ids.is_empty() {
            bail!("{at}.input_ids: expected at least one id, found none");
        }
        if self.last_logits.len() != vocab && self.of_head.is_none() {
            let found = self.last_logits.len();
            bail!("{at}.last_logits: expected {vocab} values as the model has, found {found}");
        }
        let steps = self.drafts().flat_map(|draft| &draft.steps);
        let inputs = steps.map(|step| &step.input_token);
        let mut ids = self.input_ids.iter().chain(&self.greedy_ids).chain(inputs);
        if let Some(id) = ids.find(|id| **id as usize >= vocab) {
            bail!("{at}: token id {id} is outside the model's vocabulary of {vocab}");
        }
        if !self.top5_ids.is_empty() && self.top5_ids.len() != self.input_ids.len() {
            let (expected, found) = (self.input_ids.len(), self.top5_ids.len());
            bail!("{at}.top5_ids: expected {expected} entries, one per token, found {found}");
        }
        Ok(())
    }

    /// What is drafted after the prompt.
    pub fn drafts(&self) -> impl Iterator<Item = &ReferenceDraft> {
        self.draft.iter().chain(&self.of_head)
    }

    /// Whether the reference's choice at a greedy step stays the same with differences of `gap`.
    pub fn is_decided(&self, step: usize, gap: f64) -> bool {
        match self.greedy_top5.get(step).map(|c| c.logits.as_slice()) {
            Some([best, second, ..]) => best - second >= gap,
            _ => true,
        }
    }
}
