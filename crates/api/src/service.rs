//! The service: one running model with its tokenizer and chat template.

use crate::assemble::Assembler;
use crate::cache_report::PromptPast;
use crate::cache_watch::{CacheWatch, KnownCaller};
use crate::caller_part::{CallerDigest, CallerPart, PartDigest};
use crate::card::ModelCard;
use crate::constraint::{compile, wrong};
use crate::constraint_builder::ConstraintBuilder;
use crate::conversation::{ChatRenderer, ChatTerms};
use crate::description::ModelDescription;
use crate::error::{ApiError, text_error};
use crate::named_adapters::Adapters;
use crate::options::SamplingOptions;
use crate::partition::CachePartition;
use crate::prefix::PrefixFiles;
use crate::prompt_history::PromptHistory;
use crate::receipt::{ModelIdentity, add_vocabulary};
use crate::rendered_chat::RenderedChat;
use crate::replay::ReplayMemory;
use crate::replay_turn::ReplayTurn;
use crate::request::{
    ChatRequest, Origin, OutputSpec, Prepared, Prompt, RequestOptions, StopTexts, TextRequest,
};
use crate::stream::{TextStream, TurnRecorder};
use crate::structure::GreedyMarkup;
use crate::turn_encoding::ModelDigest;
use crate::turn_records::TurnRecords;
use crate::usage_counter::UsageCounter;
use backend::AdapterSet;
use engine::{
    EngineHandle, Field, Generation, GrammarRef, LeadOptions, Led, ModelInfo, ModelTask, Request,
};
use formats::GenerationDefaults;
use sha2::{Digest, Sha256};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use text::{
    ChatTemplate, EncodeOptions, GrammarCompiler, GrammarSource, Matcher, OutputForm, Reasoning,
    TextAssets, Thinking, Tokenizer, ToolFormat,
};

/// The parts of a service.
#[derive(Debug)]
pub struct ServiceParts {
    /// The running model.
    pub engine: EngineHandle,
    /// The tokenizer, templates and special tokens.
    pub assets: TextAssets,
    /// A chat template that replaces the model's.
    pub template: Option<ChatTemplate>,
    /// Sampling defaults from the checkpoint.
    pub defaults: GenerationDefaults,
    /// Stop ids in addition to those of `defaults` and of the tokenizer.
    pub stop_ids: Vec<u32>,
    /// Format of tool calls; `None` to detect it from the template.
    pub tool_format: Option<&'static ToolFormat>,
    /// Facts about the checkpoint.
    pub card: ModelCard,
    /// Most answers computed at a time.
    pub parallel: usize,
}

/// A running model. Clones share the model and may be used concurrently.
#[derive(Clone, Debug)]
pub struct Service {
    /// The running model.
    pub engine: EngineHandle,
    renderer: ChatRenderer,
    grammars: Arc<GrammarCompiler>,
    /// Sampling defaults of requests.
    pub defaults: Arc<SamplingOptions>,
    /// Facts about the checkpoint.
    pub card: Arc<ModelCard>,
    /// Most answers computed at a time.
    pub parallel: usize,
    /// The part of the caches that requests use.
    pub partition: CachePartition,
    /// The caller whose earlier prompts explain what is not found in the cache.
    caller: Option<CallerDigest>,
    history: Arc<PromptHistory>,
    /// The adapters of the model.
    pub adapters: Adapters,
    /// The adapters of requests; `None` for the defaults of the model.
    chosen: Option<AdapterSet>,
    /// Whether the markup of calls is generated greedily, in formats that have a tracker of it.
    pub greedy_structure: bool,
    /// Takes computed prefixes to files, where there is a cache on disk.
    pub prefixes: Option<Arc<dyn PrefixFiles>>,
    /// What receipts say of the model; `None` to give none.
    pub identity: Option<Arc<ModelIdentity>>,
    /// Whether requests are made to have their tokens counted.
    pub(crate) counts: bool,
}

impl Service {
    /// Creates a service.
    pub fn new(parts: ServiceParts) -> Self {
        let assets = Arc::new(parts.assets);
        let (info, format) = (&parts.engine.info, parts.tool_format);
        let (architecture, context) = (&info.architecture, info.context_length);
        let renderer =
            ChatRenderer::new(Arc::clone(&assets), parts.template, format, architecture, context);
        let mut grammars = GrammarCompiler::new(assets);
        grammars.format = renderer.format().or(grammars.format);
        Self {
            defaults: Arc::new(renderer.parts().defaults(&parts.defaults, &parts.stop_ids)),
            card: Arc::new(parts.card),
            parallel: parts.parallel,
            partition: CachePartition::default(),
            caller: None,
            history: Arc::default(),
            adapters: Adapters::default(),
            chosen: None,
            greedy_structure: true,
            prefixes: None,
            identity: None,
            counts: false,
            engine: parts.engine,
            renderer,
            grammars: Arc::new(grammars),
        }
    }

    /// The same model, which finds turns that called tools in `records` and adds to them. Turns of
    /// another model, vocabulary or template are not found.
    pub fn with_turn_records(mut self, records: Arc<dyn TurnRecords>) -> Self {
        self.renderer.memory = Arc::new(ReplayMemory::open(records, self.digest()));
        self
    }

    /// Digest of the model, its vocabulary and its template.
    pub(crate) fn digest(&self) -> ModelDigest {
        let mut hash = Sha256::new_with_prefix(&self.card.digest);
        add_vocabulary(&mut hash, self.tokenizer());
        hash.update(self.template_source().unwrap_or_default());
        let mut digest = ModelDigest::default();
        digest.copy_from_slice(&hash.finalize()[..size_of::<ModelDigest>()]);
        digest
    }

    /// The same model for requests that use another part of the caches.
    pub fn within(&self, partition: CachePartition) -> Self {
        Self { partition, ..self.clone() }
    }

    /// The same model for requests of the caller of this name: reports of the cache compare their
    /// prompts with earlier ones of the same caller, and no others.
    pub fn for_caller(&self, name: &str) -> Self {
        Self { caller: Some(CallerDigest::of(name)), ..self.clone() }
    }

    /// The same model with these adapters for all requests, under the name of one, if there is one.
    pub fn adapted(&self, adapters: AdapterSet, name: Option<&str>) -> Self {
        let mut service = Self { chosen: Some(adapters), ..self.clone() };
        if let Some(name) = name {
            let info = ModelInfo { name: name.to_owned(), ..(*self.engine.info).clone() };
            service.engine.info = Arc::new(info);
        }
        service
    }

    /// The adapters of a request.
    pub(crate) fn adapters_of_request(&self) -> Option<AdapterSet> {
        self.chosen.clone().or_else(|| self.adapters.default_set())
    }

    /// Begins a sequence that the caller leads, with the adapters and in the part of the caches of
    /// requests of this service.
    pub fn lead(&self, options: LeadOptions) -> Led {
        let (space, adapters) = (self.partition.space, self.adapters_of_request());
        self.engine.lead(LeadOptions { space, adapters, ..options })
    }

    /// The same model for a request of the user and with the salt of `options`.
    pub fn for_options(&self, options: &RequestOptions) -> Self {
        let user = |caller: CallerDigest| match &options.user {
            Some(name) => caller.user(name),
            None => caller,
        };
        let caller = self.caller.map(user);
        Self { caller, ..self.within(self.partition.of_options(options)) }
    }

    /// The same service with `options` as the sampling of requests that leave it open, over the
    /// defaults of the model.
    ///
    /// # Errors
    /// The option that no request could have.
    pub fn with_defaults(self, options: &SamplingOptions) -> Result<Self, ApiError> {
        let defaults = Arc::new(options.over(&self.defaults));
        let service = Self { defaults, ..self };
        let (prompt, sampling) = (vec![0], SamplingOptions::default());
        if service.info().task == ModelTask::Generate {
            service.prepare(prompt, &sampling, OutputSpec::plain(true))?;
        }
        Ok(service)
    }

    /// The model.
    pub fn info(&self) -> &ModelInfo {
        &self.engine.info
    }

    /// Whether the model has reasoning that can be controlled.
    pub fn reasons(&self) -> bool {
        self.renderer.parts().reasons()
    }

    /// The chat template, if there is one.
    pub fn template_source(&self) -> Option<&str> {
        self.renderer.parts().template_source()
    }

    /// What clients may know of the model.
    pub fn description(&self) -> ModelDescription {
        let ModelInfo { architecture, vocab_size, .. } = self.info();
        let (card, defaults) = ((*self.card).clone(), (*self.defaults).clone());
        let parts = self.renderer.parts();
        ModelDescription::of(card, architecture.clone(), *vocab_size, parts, defaults)
    }

    /// The texts of the BOS and EOS tokens.
    pub fn ends_of_text(&self) -> [Option<&str>; 2] {
        let special = &self.renderer.assets.special;
        [special.bos.as_deref(), special.eos.as_deref()]
    }

    /// The tokenizer of the model.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.renderer.assets.tokenizer
    }

    /// The tokenizer, templates and special tokens.
    fn assets(&self) -> Arc<TextAssets> {
        Arc::clone(&self.renderer.assets)
    }

    /// Renders, tokenizes and submits a request for the next message of a conversation.
    ///
    /// # Errors
    /// Those of [`prepare_chat`](Self::prepare_chat) and [`start`](Self::start).
    pub fn chat(&self, request: &ChatRequest) -> Result<TextStream, ApiError> {
        self.start(&self.prepare_chat(request)?, 0, &RequestOptions::default())
    }

    /// Tokenizes and submits a request for the continuation of a text.
    ///
    /// # Errors
    /// Those of [`prepare_text`](Self::prepare_text) and [`start`](Self::start).
    pub fn complete(&self, request: &TextRequest) -> Result<TextStream, ApiError> {
        self.start(&self.prepare_text(request)?, 0, &RequestOptions::default())
    }

    /// Renders, tokenizes and checks a conversation; nothing is computed yet. Takes time
    /// proportional to the length of the text.
    ///
    /// # Errors
    /// If the model generates no text, its template cannot render the conversation, the prompt is
    /// longer than the context, a sampling option is out of range, or a grammar cannot be compiled.
    pub fn prepare_chat(&self, request: &ChatRequest) -> Result<Prepared, ApiError> {
        let (prepared, origin) = self.prepare_turn(request, None)?;
        // The earlier exchange is not part of the conversation that is remembered.
        let is_remembered = prepared.form.calls_tools() && request.earlier.is_empty();
        Ok(Prepared { origin: is_remembered.then_some(origin), ..prepared })
    }

    /// As [`prepare_chat`](Self::prepare_chat), where the tokens of the last answer may be known;
    /// with where the prompt comes from.
    pub(crate) fn prepare_turn(
        &self,
        request: &ChatRequest,
        last: Option<&Arc<ReplayTurn>>,
    ) -> Result<(Prepared, Origin), ApiError> {
        self.check_task()?;
        let chat = self.renderer.chat(request, ChatTerms { last, ..self.chat_terms() })?;
        let tokens = self.after(&request.earlier, &chat.tokens);
        let mut prepared = self.prepare(tokens, &request.sampling, chat.form.clone())?;
        self.mark(&mut prepared, &chat);
        // Compilation takes longest and comes after all other checks.
        let OutputForm { format, tools, .. } = &chat.form.output;
        let builder = ConstraintBuilder {
            compiler: &self.grammars,
            format: *format,
            thinking: chat.thinking,
            may_reason: chat.reasoning != Reasoning::Unsplit,
            tags: chat.source.tags,
        };
        prepared.request.constraint = builder.of(request, tools, &mut prepared.warnings)?;
        if let Some(format) = format.filter(|_| !tools.is_empty()) {
            self.make_markup_greedy(&mut prepared.request, format, chat.reasoning);
        }
        Ok((prepared, chat.origin))
    }

    /// Adds to `prepared` the marks of its prompt, and the message at which it leaves the caller's
    /// earlier prompts.
    fn mark(&self, prepared: &mut Prepared, chat: &RenderedChat<'_>) {
        // The earlier exchange may replace the BOS.
        let (total, own) = (prepared.request.prompt.len(), chat.tokens.len());
        if self.info().uses_marks {
            let mark = |mark: usize| (total + mark).checked_sub(own);
            prepared.request.marks = chat.marks().into_iter().filter_map(mark).collect();
        }
        if let Some(KnownCaller { past, .. }) = &mut prepared.caller {
            let token = past.difference().and_then(|token| (token + own).checked_sub(total));
            past.place = token.and_then(|token| chat.place(token));
        }
    }

    /// Makes the markup of calls greedy, where the format has a tracker of it and the request is
    /// not greedy anyway.
    fn make_markup_greedy(
        &self,
        request: &mut Request,
        format: &'static ToolFormat,
        reasoning: Reasoning,
    ) {
        if !self.greedy_structure || request.sampling.temperature == 0.0 {
            return;
        }
        if let Some(start) = format.structure(reasoning) {
            let (assets, inner) = (self.assets(), request.constraint.take());
            request.constraint = Some(GrammarRef::new(GreedyMarkup { start, assets, inner }));
        }
    }

    /// Tokenizes and checks a text; nothing is computed yet.
    ///
    /// # Errors
    /// If the text cannot be encoded or is longer than the context, a sampling option is out of
    /// range, or the grammar cannot be compiled.
    pub fn prepare_text(&self, request: &TextRequest) -> Result<Prepared, ApiError> {
        let prompt = self.prompt_ids(&request.prompt, request.add_special)?;
        let mut prepared = self.prepare(prompt, &request.sampling, OutputSpec::plain(true))?;
        if let Some(source) = &request.grammar {
            let warnings = &mut prepared.warnings;
            let constraint = compile(&self.grammars, source.clone(), Thinking::None, warnings)?;
            prepared.request.constraint = Some(constraint);
        }
        Ok(prepared)
    }

    /// Returns the state of a text before its first token in the grammar `source`, for callers that
    /// choose tokens themselves.
    ///
    /// # Errors
    /// If the grammar cannot be compiled.
    pub fn matcher(&self, source: &GrammarSource) -> Result<Matcher, ApiError> {
        let compiled = self.grammars.compile(source, Thinking::None);
        let compiled = compiled.map_err(|error| wrong(Field::Constraint, &error))?;
        Ok(compiled.start())
    }

    /// Submits a prepared request. `choice` is added to the seed, if there is one, so that choices
    /// differ.
    ///
    /// # Errors
    /// If the queue is full, or the engine refuses the request or has ended.
    pub fn start(
        &self,
        prepared: &Prepared,
        choice: usize,
        terms: &RequestOptions,
    ) -> Result<TextStream, ApiError> {
        let mut request = prepared.request.clone();
        let seed = &mut request.sampling.seed;
        *seed = seed.map(|seed| seed.wrapping_add(choice as u64));
        let prompt_tokens = request.prompt.len();
        let record = prepared.origin.as_ref().map(|origin| TurnRecorder {
            memory: Arc::clone(&self.renderer.memory),
            prompt: request.prompt[origin.shared..].to_vec(),
            origin: origin.clone(),
            sampled: Vec::new(),
        });
        let (history, caller) = (&self.history, prepared.caller.as_ref());
        let watch = CacheWatch::new(&request, self.assets(), history, caller);
        let receipt = self.begin_receipt(&mut request, terms)?;
        request.prediction = self.prediction(terms)?;
        let prediction = request.prediction.clone();
        let generation = self.submit(request, terms)?;
        let name = terms.name.clone();
        let assembler = Assembler::new(self.assets(), prepared.stop.clone(), &prepared.form, name);
        let meter = UsageCounter::new(prompt_tokens, prediction);
        let stream = TextStream::new(generation, assembler, meter, watch, record);
        let stream = stream.with_receipt(receipt);
        Ok(if terms.progress { stream.with_progress() } else { stream })
    }

    /// The tokens of the answer that the client expects; none where it expects none.
    fn prediction(&self, terms: &RequestOptions) -> Result<Vec<u32>, ApiError> {
        let Some(expected) = &terms.prediction else { return Ok(Vec::new()) };
        // Encoded apart from the prompt: the first token may be cut otherwise.
        let options = EncodeOptions { add_special: false, parse_special: false };
        self.counting().first_tokens(expected, options, 0)
    }

    /// Submits a request with the given options.
    pub(crate) fn submit(
        &self,
        mut request: Request,
        terms: &RequestOptions,
    ) -> Result<Generation, ApiError> {
        let RequestOptions { priority, tenant, user, speculate, timeout, name, .. } = terms;
        (request.priority, request.speculate, request.timeout) = (*priority, *speculate, *timeout);
        request.max_drafted = terms.max_drafted;
        [request.tenant, request.user] =
            [tenant, user].map(|name| name.as_deref().map_or(0, number_of));
        request.name.clone_from(name);
        Ok(self.engine.submit(request)?)
    }

    /// The ids of a prompt; `add_special` adds the model's special tokens to a text.
    pub(crate) fn prompt_ids(
        &self,
        prompt: &Prompt,
        add_special: bool,
    ) -> Result<Vec<u32>, ApiError> {
        match prompt {
            Prompt::Text(text) => {
                self.prompt_tokens(text, EncodeOptions { add_special, parse_special: true }, 0)
            }
            Prompt::Ids(ids) => Ok(ids.clone()),
        }
    }

    /// The text of the prompt of a conversation.
    ///
    /// # Errors
    /// If the model generates no text, or its template cannot render the conversation.
    pub fn render(&self, request: &ChatRequest) -> Result<String, ApiError> {
        self.check_task()?;
        self.renderer.text(request, self.counting().chat_terms())
    }

    /// The text of `ids`, special tokens left out.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.tokenizer().decode(ids, true)
    }

    /// The ids of `text`.
    ///
    /// # Errors
    /// If the text cannot be encoded.
    pub fn tokenize(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, ApiError> {
        self.tokenizer().encode(text, options).map_err(text_error)
    }

    pub(crate) fn check_task(&self) -> Result<(), ApiError> {
        match self.info().task {
            ModelTask::Generate => Ok(()),
            _ => Err(ApiError::invalid("model", "the model generates no text")),
        }
    }

    fn chat_terms(&self) -> ChatTerms<'_> {
        let (space, ends) = (self.partition.space, &self.defaults.stop_ids);
        ChatTerms { space, ends, limit: self.token_limit(), last: None }
    }

    /// `earlier` followed by `prompt`, without a second BOS.
    fn after(&self, earlier: &[u32], prompt: &[u32]) -> Vec<u32> {
        let bos = self.tokenizer().special.bos;
        let again = !earlier.is_empty() && prompt.first().copied() == bos && bos.is_some();
        [earlier, &prompt[usize::from(again)..]].concat()
    }

    fn prepare(
        &self,
        prompt: Vec<u32>,
        sampling: &SamplingOptions,
        form: OutputSpec,
    ) -> Result<Prepared, ApiError> {
        sampling.check_biases()?;
        let sampling = sampling.over(&self.defaults);
        sampling.check()?;
        let request = Request {
            prompt,
            sampling: sampling.params(),
            max_tokens: sampling.max_tokens,
            min_tokens: sampling.min_tokens.unwrap_or(0),
            stop_ids: sampling.stop_ids,
            logprobs: sampling.logprobs,
            sampled_logprobs: sampling.sampled_logprobs,
            prompt_logprobs: sampling.prompt_logprobs,
            prompt_logprobs_from: sampling.prompt_logprobs_from.unwrap_or(0),
            space: self.partition.space,
            adapters: self.adapters_of_request(),
            ..Request::default()
        };
        self.engine.check(&request)?;
        let stop = StopTexts { strings: sampling.stop, included: sampling.include_stop };
        let caller = self.known_caller(&request);
        Ok(Prepared { request, stop, form, origin: None, caller, warnings: Vec::new() })
    }

    /// The caller of a request, whose prompt is compared with the caller's earlier ones.
    fn known_caller(&self, request: &Request) -> Option<KnownCaller> {
        let caller = self.caller.filter(|_| !self.counts)?;
        let part = PartDigest::of(request.space, request.adapters.as_ref());
        let of = CallerPart { caller, part };
        let past = self.history.past(&of, &request.prompt);
        Some(KnownCaller { of, past: PromptPast::new(past, &request.prompt) })
    }
}

/// The number of a tenant or a user. Two with the same number share one part of the machine.
fn number_of(tenant: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    tenant.hash(&mut hasher);
    hasher.finish()
}
