//! Whole conversations as the tokens that a model was trained on.

use crate::conversation::{ChatRenderer, ChatTerms};
use crate::error::ApiError;
use crate::length::TokenLimit;
use crate::message::{Message, Tool};
use crate::request::ChatRequest;
use formats::ModelConfig;
use std::sync::Arc;
use text::TextAssets;

/// Renders whole conversations with the chat template of a model that need not run.
#[derive(Debug)]
pub struct TranscriptRenderer(ChatRenderer);

impl TranscriptRenderer {
    /// A renderer for the model of these files.
    ///
    /// # Errors
    /// If the model has no chat template, or its syntax is wrong.
    pub fn new(assets: Arc<TextAssets>, config: &ModelConfig) -> Result<Self, ApiError> {
        let renderer = ChatRenderer::new(assets, None, None, &config.architecture, config.context);
        renderer.templates.of(false)?;
        Ok(Self(renderer))
    }

    /// The tokens of a conversation, from its first message to the end of its last. Control tokens
    /// of the template are parsed; their texts in messages stay text.
    ///
    /// # Errors
    /// If the template refuses the messages, or the vocabulary cannot encode the text.
    pub fn tokens(&self, messages: Vec<Message>, tools: Vec<Tool>) -> Result<Vec<u32>, ApiError> {
        let request =
            ChatRequest { messages, tools, add_generation_prompt: false, ..Default::default() };
        let limit = TokenLimit { context: usize::MAX, counts: false };
        let terms = ChatTerms { space: Default::default(), ends: &[], limit, last: None };
        Ok(self.0.chat(&request, terms)?.tokens)
    }
}
