//! The service: one model with its tokenizer and template, shared by all callers.

use crate::assemble::Assembler;
use crate::error::ApiError;
use crate::options::SamplingOptions;
use crate::request::{ChatRequest, Form, Prepared, Prompt, Reasoning, Terms, TextRequest};
use crate::stream::TextStream;
use engine::{EngineHandle, Generation, ModelInfo, Request};
use formats::GenerationDefaults;
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use text::{ChatTemplate, EncodeOptions, TextAssets, TextError, Tokenizer};

/// The tag that opens reasoning.
const THINK: &str = "<think>";

/// What a service is made of.
#[derive(Debug)]
pub struct ServiceParts {
    /// The running model.
    pub engine: EngineHandle,
    /// Its tokenizer, templates and special tokens.
    pub assets: TextAssets,
    /// A chat template in place of the model's own.
    pub template: Option<ChatTemplate>,
    /// How its makers want it sampled.
    pub defaults: GenerationDefaults,
    /// Ids that end an answer besides those of `defaults` and the tokenizer's own.
    pub stop_ids: Vec<u32>,
}

/// A model to talk to. Clones share it; all of them may be used at once.
#[derive(Clone, Debug)]
pub struct Service {
    engine: EngineHandle,
    assets: Arc<TextAssets>,
    template: Option<Arc<ChatTemplate>>,
    defaults: Arc<SamplingOptions>,
    /// The model marks its reasoning.
    thinks: bool,
}

impl Service {
    /// A service of these parts.
    pub fn new(parts: ServiceParts) -> Self {
        Self {
            thinks: thinks(&parts),
            defaults: Arc::new(defaults(&parts)),
            engine: parts.engine,
            assets: Arc::new(parts.assets),
            template: parts.template.map(Arc::new),
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

    /// Requests that may wait.
    pub fn queue(&self) -> usize {
        self.engine.queue()
    }

    /// What the engine has counted.
    pub fn metrics(&self) -> &engine::Metrics {
        self.engine.metrics()
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
        &self.assets.tokenizer
    }

    /// Renders, tokenizes and submits: the next message of a conversation.
    pub fn chat(&self, request: &ChatRequest) -> Result<TextStream, ApiError> {
        self.start(&self.prepare_chat(request)?, 0, &Terms::default())
    }

    /// Tokenizes and submits: the continuation of a text.
    pub fn complete(&self, request: &TextRequest) -> Result<TextStream, ApiError> {
        self.start(&self.prepare_text(request)?, 0, &Terms::default())
    }

    /// Renders, tokenizes and checks a conversation; nothing is computed yet. Takes time in
    /// proportion to the text.
    pub fn prepare_chat(&self, request: &ChatRequest) -> Result<Prepared, ApiError> {
        let rendered = self.rendered(request)?;
        let prompt = self.assets.encode(&rendered).map_err(text_error)?;
        let reasoning = match request.split_reasoning {
            true if rendered.text.trim_end().ends_with(THINK) => Reasoning::Open,
            true if self.thinks => Reasoning::Possible,
            _ => Reasoning::Unsplit,
        };
        self.prepare(prompt, &request.sampling, Form { reasoning, continues: false })
    }

    /// Tokenizes and checks a text; nothing is computed yet.
    pub fn prepare_text(&self, request: &TextRequest) -> Result<Prepared, ApiError> {
        let prompt = self.prompt_ids(&request.prompt, request.add_special)?;
        let form = Form { reasoning: Reasoning::Unsplit, continues: true };
        self.prepare(prompt, &request.sampling, form)
    }

    /// Submits a prepared request. Each `choice` of one with a seed has a seed of its own.
    pub fn start(
        &self,
        prepared: &Prepared,
        choice: usize,
        terms: &Terms,
    ) -> Result<TextStream, ApiError> {
        let mut request = prepared.request.clone();
        let seed = &mut request.sampling.seed;
        *seed = seed.map(|seed| seed.wrapping_add(choice as u64));
        let prompt_tokens = request.prompt.len();
        let generation = self.submit(request, terms)?;
        let assets = Arc::clone(&self.assets);
        let assembler = Assembler::new(assets, &prepared.stop, prepared.form);
        Ok(TextStream::new(generation, assembler, prompt_tokens))
    }

    /// Submits a request on these terms.
    pub(crate) fn submit(
        &self,
        mut request: Request,
        terms: &Terms,
    ) -> Result<Generation, ApiError> {
        let Terms { priority, tenant, speculate, timeout, name } = terms;
        (request.priority, request.speculate, request.timeout) = (*priority, *speculate, *timeout);
        request.tenant = tenant.as_deref().map_or(0, number_of);
        request.name.clone_from(name);
        Ok(self.engine.submit(request)?)
    }

    /// Ids of a prompt. Those that a text begins and ends with are added to a text.
    pub(crate) fn prompt_ids(
        &self,
        prompt: &Prompt,
        add_special: bool,
    ) -> Result<Vec<u32>, ApiError> {
        match prompt {
            Prompt::Text(text) => self.encode(text, add_special),
            Prompt::Ids(ids) => Ok(ids.clone()),
        }
    }

    /// The text of the prompt that the template makes of a conversation.
    pub fn render(&self, request: &ChatRequest) -> Result<String, ApiError> {
        Ok(self.rendered(request)?.text)
    }

    /// The text of `ids`, special tokens left out.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.assets.tokenizer.decode(ids, true)
    }

    fn rendered(&self, request: &ChatRequest) -> Result<text::Prompt, ApiError> {
        let input = template_input(request);
        let own;
        let template = match &self.template {
            Some(template) => template,
            None => {
                own = self.assets.templates.get(None, !request.tools.is_empty());
                own.as_ref().map_err(template_error)?
            }
        };
        self.assets.render(template, &input, None).map_err(|error| template_error(&error))
    }

    fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, ApiError> {
        let options = EncodeOptions { add_special, parse_special: true };
        self.assets.tokenizer.encode(text, options).map_err(text_error)
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
            prompt_logprobs: sampling.prompt_logprobs,
            ..Request::default()
        };
        self.engine.check(&request)?;
        Ok(Prepared { request, stop: sampling.stop, form })
    }
}

/// Tells tenants apart. That two of many share a number by chance only means that they share their
/// part of the machine.
fn number_of(tenant: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    tenant.hash(&mut hasher);
    hasher.finish()
}

fn text_error(error: TextError) -> ApiError {
    ApiError::Text(error.to_string())
}

fn template_error(error: &TextError) -> ApiError {
    match error {
        TextError::Template(message) => ApiError::Template(message.clone()),
        other => ApiError::Template(other.to_string()),
    }
}

/// What requests get that ask for nothing else, the ends of an answer included.
fn defaults(parts: &ServiceParts) -> SamplingOptions {
    let mut defaults = SamplingOptions::from(&parts.defaults);
    let ids = &mut defaults.stop_ids;
    ids.extend(parts.assets.tokenizer.special_ids().eos);
    ids.extend(&parts.stop_ids);
    ids.sort_unstable();
    ids.dedup();
    defaults
}

/// Whether the vocabulary or a template has the tag of reasoning.
fn thinks(parts: &ServiceParts) -> bool {
    let templates = &parts.assets.templates;
    let mut sources = templates.names().filter_map(|name| templates.source(name));
    parts.assets.tokenizer.token_to_id(THINK).is_some()
        || parts.template.as_ref().is_some_and(|template| template.mentions(THINK))
        || sources.any(|source| source.contains(THINK))
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
