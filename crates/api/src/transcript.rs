//! Whole conversations as the tokens that a model was trained on.

use crate::conversation::Renderer;
use crate::error::ApiError;
use crate::length::TokenLimit;
use crate::message::{Message, Tool};
use crate::probed_template::ProbedTemplates;
use crate::replay::ReplayMemory;
use crate::request::ChatRequest;
use formats::{ModelConfig, families};
use text::TextAssets;

/// Renders whole conversations with the chat template of a model that need not run.
#[derive(Debug)]
pub struct TranscriptRenderer<'a> {
    assets: &'a TextAssets,
    config: &'a ModelConfig,
    templates: ProbedTemplates,
    /// Without turns.
    memory: ReplayMemory,
}

impl<'a> TranscriptRenderer<'a> {
    /// A renderer for the model of these files.
    ///
    /// # Errors
    /// If the model has no chat template, or its syntax is wrong.
    pub fn new(assets: &'a TextAssets, config: &'a ModelConfig) -> Result<Self, ApiError> {
        let templates = ProbedTemplates::new(None, assets, None);
        templates.of(false)?;
        Ok(Self { assets, config, templates, memory: ReplayMemory::default() })
    }

    /// The tokens of a conversation, from its first message to the end of its last. Control tokens
    /// of the template are parsed; their texts in messages stay text.
    ///
    /// # Errors
    /// If the template refuses the messages, or the vocabulary cannot encode the text.
    pub fn tokens(&self, messages: Vec<Message>, tools: Vec<Tool>) -> Result<Vec<u32>, ApiError> {
        let request =
            ChatRequest { messages, tools, add_generation_prompt: false, ..Default::default() };
        let renderer = Renderer {
            assets: self.assets,
            probed: self.templates.of(request.offers_tools())?,
            memory: &self.memory,
            space: Default::default(),
            ends: &[],
            rules: families::chat_rules(&self.config.architecture),
            thinks: false,
            context: self.config.context,
            limit: TokenLimit { context: usize::MAX, counts: false },
            marks: false,
        };
        Ok(renderer.prompt(&request)?.tokens)
    }
}
