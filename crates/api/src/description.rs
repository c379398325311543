//! What clients may know of a model, whether it runs or not.

use crate::card::ModelCard;
use crate::effort::STRENGTH;
use crate::options::SamplingOptions;
use crate::reasoning_tags::ReasoningTags;
use formats::GenerationDefaults;
use text::{ChatTemplate, TextAssets, ToolFormat};

/// What clients may know of a model.
#[derive(Clone, Debug, Default)]
pub struct ModelDescription {
    /// Facts about the checkpoint.
    pub card: ModelCard,
    /// Family of the model, such as `qwen3`.
    pub architecture: String,
    /// Number of logits.
    pub vocab_size: usize,
    /// The chat template, if there is one.
    pub template: Option<String>,
    /// Sampling of requests that leave it open.
    pub defaults: SamplingOptions,
    /// Whether the model can be given tools: it has a chat template.
    pub takes_tools: bool,
    /// Whether the model has reasoning that can be controlled.
    pub reasons: bool,
    /// Whether the vocabulary has tokens that mark a gap to be filled in.
    pub fills: bool,
}

/// The tokenizer and the templates of a model, with a template that replaces the model's own.
#[derive(Clone, Copy, Debug)]
pub struct TextParts<'a> {
    /// The tokenizer, templates and special tokens.
    pub assets: &'a TextAssets,
    /// The template that replaces the model's.
    pub template: Option<&'a ChatTemplate>,
}

impl ModelDescription {
    /// The description of a model that does not run. `vocab_size` is its number of logits.
    pub fn of(
        card: ModelCard,
        architecture: String,
        vocab_size: usize,
        parts: TextParts<'_>,
        defaults: SamplingOptions,
    ) -> Self {
        Self {
            card,
            architecture,
            vocab_size,
            template: parts.template_source().map(str::to_owned),
            defaults,
            takes_tools: parts.template_source().is_some(),
            reasons: parts.reasons(),
            fills: parts.assets.tokenizer.infill.is_some(),
        }
    }
}

impl<'a> TextParts<'a> {
    /// The chat template, if there is one.
    pub fn template_source(&self) -> Option<&'a str> {
        let own = || self.assets.templates.source("default");
        self.template.map(ChatTemplate::source).or_else(own)
    }

    /// Whether the model has reasoning that can be controlled.
    pub fn reasons(&self) -> bool {
        let controls = ["reasoning_effort", STRENGTH];
        let controlled = |source: &str| controls.iter().any(|name| source.contains(name));
        self.thinks() || self.template_source().is_some_and(controlled)
    }

    /// Whether the vocabulary or a template has the tag of reasoning.
    pub(crate) fn thinks(&self) -> bool {
        let own = || self.assets.templates.sources();
        let sources = || self.template.map(ChatTemplate::source).into_iter().chain(own());
        let tags = ReasoningTags::of(sources().find_map(ToolFormat::detect), None);
        self.assets.tokenizer.token_to_id(tags.open).is_some()
            || sources().any(|source| source.contains(tags.open))
    }

    /// Sampling of requests that leave it open, stop ids included: that of the checkpoint, with
    /// further `stop_ids`.
    pub fn defaults(&self, own: &GenerationDefaults, stop_ids: &[u32]) -> SamplingOptions {
        let mut defaults = SamplingOptions::from(own);
        let ids = &mut defaults.stop_ids;
        ids.extend(self.assets.tokenizer.special.eos);
        ids.extend(stop_ids);
        ids.sort_unstable();
        ids.dedup();
        defaults
    }
}
