//! The request of `POST /api/generate`: an answer to one prompt, the continuation of a raw text,
//! or what is missing in the middle of one.

use crate::generate::flow::Reply;
use crate::http::error::HttpError;
use crate::http::wire;
use crate::protocols::ollama::answer::{AnswerKind, OllamaAnswer};
use crate::protocols::ollama::duration::{self, KeepAlive};
use crate::protocols::ollama::format;
use crate::protocols::ollama::options::{self, Options};
use crate::protocols::ollama::think::{self, Think};
use api::{
    ApiError, ChatRequest, GrammarSource, InfillRequest, Message, Prepared, Prompt,
    SamplingOptions, Service, TextRequest,
};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A prompt to answer. Without one it asks to load the model.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct GenerateBody {
    /// Any name: one model is served.
    #[serde(rename = "model")]
    _model: Option<String>,
    prompt: Option<String>,
    /// What follows the gap that is to be filled, where `prompt` is what precedes it.
    suffix: Option<String>,
    system: Option<String>,
    /// Not supported.
    template: Option<String>,
    /// Ids that an earlier answer ended with.
    context: Option<Vec<u32>>,
    /// Take the prompt as it is, without a template.
    raw: Option<bool>,
    /// Not supported.
    images: Option<Vec<Value>>,
    /// Answer in lines; so it is unless this is false.
    stream: Option<bool>,
    /// `"json"` or a JSON schema.
    format: Option<Value>,
    #[schema(value_type = Option<Options>)]
    options: Option<Value>,
    think: Option<Think>,
    /// Checked, but the model stays loaded.
    keep_alive: Option<KeepAlive>,
    /// Nothing is ever cut off.
    #[serde(rename = "truncate")]
    _truncate: Option<bool>,
    /// Nothing is ever pushed out.
    #[serde(rename = "shift")]
    _shift: Option<bool>,
    logprobs: Option<bool>,
    #[serde(default, deserialize_with = "wire::count")]
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<usize>,
}

/// Reads and prepares a request.
pub(crate) fn read(service: &Service, body: &Value) -> Result<Reply<OllamaAnswer>, HttpError> {
    let body: GenerateBody = wire::read(body)?;
    let unload = duration::unloads(body.keep_alive.as_ref())?;
    let logprobs = options::logprobs(body.logprobs, body.top_logprobs)?;
    let answer = |context| {
        OllamaAnswer::new(&service.info().name, AnswerKind::Generate, logprobs.is_some(), context)
    };
    body.check()?;
    let sampling = options::sampling(body.options.as_ref())?;
    if body.prompt.as_deref().unwrap_or_default().is_empty() && body.suffix().is_none() {
        options::refuse(service, body.context.unwrap_or_default(), sampling)?;
        return Ok(Reply::Ready(answer(None).idle(if unload { "unload" } else { "load" })));
    }
    think::check(body.think, service)?;
    let grammar = format::grammar(body.format.as_ref())?;
    // The ids of the answer are part of the context, and come with log probabilities only.
    let goes_on = !body.is_raw() && body.suffix().is_none();
    let logprobs = logprobs.or(goes_on.then_some(0));
    let stream = body.stream;
    let prompt = body.prepare(service, SamplingOptions { logprobs, ..sampling }, grammar);
    let prompt = prompt.map_err(|error| HttpError::of(error, "prompt"))?;
    let context = goes_on.then(|| prompt.prompt().to_vec());
    Ok(answer(context).generation(prompt, stream).into())
}

impl GenerateBody {
    fn is_raw(&self) -> bool {
        self.raw.unwrap_or(false)
    }

    fn suffix(&self) -> Option<&str> {
        self.suffix.as_deref().filter(|suffix| !suffix.is_empty())
    }

    fn check(&self) -> Result<(), HttpError> {
        let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let (system, context) = (given(&self.system), self.context.is_some());
        let raw = self.is_raw() || self.suffix().is_some();
        let refusals = [
            (given(&self.template), "template", "template is not supported"),
            (
                self.images.as_ref().is_some_and(|images| !images.is_empty()),
                "images",
                "images are not supported",
            ),
            (raw && system, "system", "system needs a template, which raw and suffix go without"),
            (raw && context, "context", "context cannot go with raw or suffix"),
        ];
        match refusals.into_iter().find(|(refused, ..)| *refused) {
            Some((_, param, message)) => Err(HttpError::invalid(param, message)),
            None => Ok(()),
        }
    }

    fn prepare(
        self,
        service: &Service,
        sampling: SamplingOptions,
        grammar: Option<GrammarSource>,
    ) -> Result<Prepared, ApiError> {
        if self.suffix().is_some() {
            return self.fill(service, sampling, grammar);
        }
        let prompt = self.prompt.unwrap_or_default();
        if self.raw.unwrap_or(false) {
            let prompt = prompt.as_str().into();
            let request = TextRequest { prompt, add_special: true, sampling, grammar };
            return service.prepare_text(&request);
        }
        let system = self.system.filter(|system| !system.is_empty());
        let system = system.map(Message::system);
        service.prepare_chat(&ChatRequest {
            messages: system.into_iter().chain([Message::user(prompt)]).collect(),
            template_kwargs: think::kwargs(self.think),
            earlier: self.context.unwrap_or_default(),
            sampling,
            grammar,
            ..ChatRequest::default()
        })
    }

    fn fill(
        self,
        service: &Service,
        sampling: SamplingOptions,
        grammar: Option<GrammarSource>,
    ) -> Result<Prepared, ApiError> {
        let infill = service.infill(&InfillRequest {
            prefix: self.prompt.unwrap_or_default(),
            suffix: self.suffix.unwrap_or_default(),
            ..InfillRequest::default()
        })?;
        let sampling = SamplingOptions { stop_ids: infill.stop_ids, ..sampling };
        let prompt = Prompt::Ids(infill.prompt);
        service.prepare_text(&TextRequest { prompt, add_special: false, sampling, grammar })
    }
}
