//! The service: one model with its tokenizer and template, shared by all callers.

use crate::assemble::Assembler;
use crate::error::ApiError;
use crate::options::SamplingOptions;
use crate::request::{ChatRequest, Form, Prepared, Prompt, Reasoning, TextRequest};
use crate::stream::TextStream;
use engine::{EngineHandle, ModelInfo, Request};
use formats::GenerationDefaults;
use serde_json::{Value, json};
use std::sync::Arc;
use text::{ChatTemplate, EncodeOptions, SpecialTokens, TextError, Tokenizer};

/// What a service is made of.
#[derive(Debug)]
pub struct ServiceParts {
    /// The running model.
    pub engine: EngineHandle,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Its chat template, if it has one.
    pub template: Option<ChatTemplate>,
    /// The special tokens that the template may name.
    pub special: SpecialTokens,
    /// How its makers want it sampled.
    pub defaults: GenerationDefaults,
    /// Ids that end an answer besides those of `defaults` and the tokenizer's own.
    pub stop_ids: Vec<u32>,
}

/// A model to talk to. Clones share it; all of them may be used at once.
#[derive(Clone, Debug)]
pub struct Service {
    engine: EngineHandle,
    tokenizer: Arc<Tokenizer>,
    template: Option<Arc<ChatTemplate>>,
    special: Arc<SpecialTokens>,
    defaults: Arc<SamplingOptions>,
    /// The model marks its reasoning.
    thinks: bool,
}

impl Service {
    /// A service of these parts.
    pub fn new(parts: ServiceParts) -> Self {
        let mut defaults = SamplingOptions::from(&parts.defaults);
        defaults.stop_ids.extend(parts.tokenizer.special_ids().eos);
        defaults.stop_ids.extend(parts.stop_ids);
        defaults.stop_ids.sort_unstable();
        defaults.stop_ids.dedup();
        let thinks = parts.tokenizer.token_to_id("<think>").is_some()
            || parts.template.as_ref().is_some_and(|template| template.mentions("<think>"));
        Self {
            engine: parts.engine,
            tokenizer: Arc::new(parts.tokenizer),
            template: parts.template.map(Arc::new),
            special: Arc::new(parts.special),
            defaults: Arc::new(defaults),
            thinks,
        }
    }

    /// The model.
    pub fn info(&self) -> &ModelInfo {
        self.engine.info()
    }

    /// Whether the engine still runs.
    pub fn is_alive(&self) -> bool {
        self.engine.is_alive()
    }

    /// Waits for the end of the engine.
    pub async fn stopped(&self) {
        self.engine.stopped().await;
    }

    /// The sampling of requests that ask for nothing else.
    pub fn defaults(&self) -> &SamplingOptions {
        &self.defaults
    }

    /// The tokenizer of the model.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Renders, tokenizes and submits: the next message of a conversation.
    pub fn chat(&self, request: &ChatRequest) -> Result<TextStream, ApiError> {
        self.start(&self.prepare_chat(request)?, 0)
    }

    /// Tokenizes and submits: the continuation of a text.
    pub fn complete(&self, request: &TextRequest) -> Result<TextStream, ApiError> {
        self.start(&self.prepare_text(request)?, 0)
    }

    /// Renders, tokenizes and checks a conversation; nothing is computed yet. Takes time in
    /// proportion to the text.
    pub fn prepare_chat(&self, request: &ChatRequest) -> Result<Prepared, ApiError> {
        let rendered = self.render(request)?;
        // As with Hugging Face's library: the template alone decides what a prompt begins with.
        let prompt = self.encode(&rendered, false)?;
        let reasoning = match request.split_reasoning {
            true if rendered.trim_end().ends_with("<think>") => Reasoning::Open,
            true if self.thinks => Reasoning::Possible,
            _ => Reasoning::Unsplit,
        };
        self.prepare(prompt, &request.sampling, Form { reasoning, continues: false })
    }

    /// Tokenizes and checks a text; nothing is computed yet.
    pub fn prepare_text(&self, request: &TextRequest) -> Result<Prepared, ApiError> {
        let prompt = match &request.prompt {
            Prompt::Text(text) => self.encode(text, request.add_special)?,
            Prompt::Ids(ids) => ids.clone(),
        };
        let form = Form { reasoning: Reasoning::Unsplit, continues: true };
        self.prepare(prompt, &request.sampling, form)
    }

    /// Submits a prepared request. Each `choice` of one with a seed has a seed of its own.
    pub fn start(&self, prepared: &Prepared, choice: usize) -> Result<TextStream, ApiError> {
        let mut request = prepared.request.clone();
        let seed = &mut request.sampling.seed;
        *seed = seed.map(|seed| seed.wrapping_add(choice as u64));
        let prompt_tokens = request.prompt.len();
        let generation = self.engine.submit(request)?;
        let tokenizer = Arc::clone(&self.tokenizer);
        let assembler = Assembler::new(tokenizer, &prepared.stop, prepared.form);
        Ok(TextStream::new(generation, assembler, prompt_tokens))
    }

    /// The prompt that the template makes of a conversation.
    pub fn render(&self, request: &ChatRequest) -> Result<String, ApiError> {
        let missing = || ApiError::Template("the model has none".into());
        let template = self.template.as_ref().ok_or_else(missing)?;
        template.render(&template_input(request), &self.special, None).map_err(
            |error| match error {
                TextError::Template(message) => ApiError::Template(message),
                other => ApiError::Template(other.to_string()),
            },
        )
    }

    /// The text of `ids`, special tokens left out.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.tokenizer.decode(ids, true)
    }

    fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, ApiError> {
        let options = EncodeOptions { add_special, parse_special: true };
        self.tokenizer.encode(text, options).map_err(|error| ApiError::Text(error.to_string()))
    }

    fn prepare(
        &self,
        prompt: Vec<u32>,
        sampling: &SamplingOptions,
        form: Form,
    ) -> Result<Prepared, ApiError> {
        let sampling = sampling.over(&self.defaults);
        sampling.check()?;
        let request = Request {
            prompt,
            sampling: sampling.params(),
            max_tokens: sampling.max_tokens,
            min_tokens: sampling.min_tokens.unwrap_or(0),
            stop_ids: sampling.stop_ids,
            logprobs: sampling.logprobs,
        };
        self.engine.check(&request)?;
        Ok(Prepared { request, stop: sampling.stop, form })
    }
}

/// The variables of the template. Tools are left undefined where there are none, as templates
/// ask whether there are.
fn template_input(request: &ChatRequest) -> Value {
    let mut input = request.template_kwargs.clone();
    input.insert("messages".into(), json!(request.messages));
    input.insert("add_generation_prompt".into(), json!(request.add_generation_prompt));
    if !request.tools.is_empty() {
        input.insert("tools".into(), json!(request.tools));
    }
    Value::Object(input)
}
