//! `POST /api/chat` and `POST /api/generate`: the next message of a conversation; an answer to one
//! prompt, the continuation of a raw text, or what is missing in the middle of one.

use crate::generate::flow::{self, NamedModel, Reply};
use crate::generate::logprobs;
use crate::generate::think::Think;
use crate::http::error::HttpError;
use crate::http::fields::ObjectReader;
use crate::http::models::ModelUse;
use crate::http::refusals::Refusals;
use crate::http::request::RequestContext;
use crate::http::wire;
use crate::protocols::ollama::answer::{AnswerKind, OllamaAnswer};
use crate::protocols::ollama::keep_alive::{self, KeepAliveTime};
use crate::protocols::ollama::line::{ChatLine, GenerateLine};
use crate::protocols::ollama::messages::{self, OllamaMessage};
use crate::protocols::ollama::options::{self, Options};
use crate::protocols::ollama::refusal::Refusal;
use api::{
    ChatRequest, InfillRequest, Message, Prompt, SamplingOptions, Service, TextRequest, Tool,
};
use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The next message of a conversation.
#[utoipa::path(
    post, path = "/api/chat", tag = "Ollama", request_body = ChatBody,
    responses(
        (status = 200, content(
            (ChatLine = "application/json"), (ChatLine = "application/x-ndjson"))),
        Refusals<Refusal>
    )
)]
pub(crate) async fn chat(context: RequestContext, body: Body) -> Result<Response, HttpError> {
    answer(context, body, AnswerKind::Chat, prepare_chat).await
}

/// Computes an answer. Where a request asks for no more than to unload a model that is not loaded,
/// it is not loaded for that.
async fn answer(
    context: RequestContext,
    body: Body,
    kind: AnswerKind,
    read: fn(&Service, &Value) -> Result<Reply<OllamaAnswer>, HttpError>,
) -> Result<Response, HttpError> {
    let work = async move |context: RequestContext, named: NamedModel| {
        if keep_alive::is_done(&named, &["messages", "prompt", "suffix"]) {
            let name = named.body()["model"].as_str().unwrap_or_default();
            let line = OllamaAnswer::new(name, kind, false).unloaded();
            return Ok(Json(line).into_response());
        }
        let read = move |model: &ModelUse, body: &Value| read(&model.service, body);
        flow::answered(context, named, read).await
    };
    flow::when_ready::<OllamaAnswer, _>(context, body, work).await
}

/// The next message of a conversation. Without messages it asks to load the model.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OllamaChatBody)]
struct ChatBody {
    /// The name of a model; any name where one is served.
    #[serde(rename = "model")]
    _model: Option<String>,
    messages: Option<Vec<OllamaMessage>>,
    /// Tools the model may call.
    tools: Option<Vec<Value>>,
    /// Answer in lines; so it is unless this is false.
    stream: Option<bool>,
    /// `"json"` or a JSON schema.
    format: Option<Value>,
    options: Option<Options>,
    think: Option<Think>,
    /// How long the model stays loaded after this request.
    keep_alive: Option<KeepAliveTime>,
    /// Nothing is ever cut off, as `warnings` say.
    #[serde(rename = "truncate")]
    _truncate: Option<bool>,
    /// Nothing is ever pushed out, as `warnings` say.
    #[serde(rename = "shift")]
    _shift: Option<bool>,
    logprobs: Option<bool>,
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<usize>,
}

/// Reads and prepares a request for the next message.
fn prepare_chat(service: &Service, body: &Value) -> Result<Reply<OllamaAnswer>, HttpError> {
    let warnings = options::warnings(body, service.info().context_length);
    let body: ChatBody = wire::read(body)?;
    let unload = keep_alive::unloads(body.keep_alive.as_ref())?;
    let logprobs = logprobs::alternatives(body.logprobs, body.top_logprobs)?;
    let mut answer = OllamaAnswer::new(&service.info().name, AnswerKind::Chat, logprobs.is_some());
    answer.warnings = warnings;
    let messages = messages::read(body.messages.unwrap_or_default())?;
    let sampling = options::sampling(body.options.as_ref())?;
    if messages.is_empty() {
        return answer.idle(service, unload, Vec::new(), sampling);
    }
    options::check_think(body.think, service)?;
    let grammar = options::grammar(body.format.as_ref())?;
    let request = ChatRequest {
        messages,
        tools: tools(body.tools.unwrap_or_default())?,
        template_kwargs: options::think_kwargs(body.think),
        sampling: SamplingOptions { logprobs, ..sampling },
        grammar,
        ..ChatRequest::default()
    };
    let prompt =
        service.prepare_chat(&request).map_err(|error| HttpError::of(error, "messages"))?;
    answer.warnings.extend(prompt.warnings());
    Ok(answer.generation(prompt, body.stream))
}

fn tools(tools: Vec<Value>) -> Result<Vec<Tool>, HttpError> {
    for (at, tool) in tools.iter().enumerate() {
        let tool = ObjectReader::of(tool, &format!("tools[{at}]"))?;
        if let Some(function) = tool.fields("function")? {
            function.text("name")?;
            function.text("description")?;
            function.fields("parameters")?;
        }
    }
    Ok(tools.into_iter().map(Tool::from).collect())
}

/// The answer to a prompt.
#[utoipa::path(
    post, path = "/api/generate", tag = "Ollama", request_body = GenerateBody,
    responses(
        (status = 200, content(
            (GenerateLine = "application/json"), (GenerateLine = "application/x-ndjson"))),
        Refusals<Refusal>
    )
)]
pub(crate) async fn generate(context: RequestContext, body: Body) -> Result<Response, HttpError> {
    answer(context, body, AnswerKind::Generate, prepare_prompt).await
}

/// A prompt to answer. Without one it asks to load the model.
#[derive(Debug, Deserialize, ToSchema)]
struct GenerateBody {
    /// The name of a model; any name where one is served.
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
    /// Not supported, as `height` and `steps`: models make no images.
    #[serde(default, deserialize_with = "wire::exact")]
    width: Option<i64>,
    #[serde(default, deserialize_with = "wire::exact")]
    height: Option<i64>,
    #[serde(default, deserialize_with = "wire::exact")]
    steps: Option<i64>,
    /// Answer in lines; so it is unless this is false.
    stream: Option<bool>,
    /// `"json"` or a JSON schema.
    format: Option<Value>,
    options: Option<Options>,
    think: Option<Think>,
    /// How long the model stays loaded after this request.
    keep_alive: Option<KeepAliveTime>,
    /// Nothing is ever cut off, as `warnings` say.
    #[serde(rename = "truncate")]
    _truncate: Option<bool>,
    /// Nothing is ever pushed out, as `warnings` say.
    #[serde(rename = "shift")]
    _shift: Option<bool>,
    logprobs: Option<bool>,
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<usize>,
}

/// Reads and prepares a request for an answer to a prompt.
fn prepare_prompt(service: &Service, body: &Value) -> Result<Reply<OllamaAnswer>, HttpError> {
    let warnings = options::warnings(body, service.info().context_length);
    let body: GenerateBody = wire::read(body)?;
    let unload = keep_alive::unloads(body.keep_alive.as_ref())?;
    let logprobs = logprobs::alternatives(body.logprobs, body.top_logprobs)?;
    let shown = logprobs.is_some();
    let mut answer = OllamaAnswer::new(&service.info().name, AnswerKind::Generate, shown);
    answer.warnings = warnings;
    body.check()?;
    let sampling = options::sampling(body.options.as_ref())?;
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let (prompt, suffix) = (given(body.prompt), given(body.suffix));
    if prompt.is_none() && suffix.is_none() {
        return answer.idle(service, unload, body.context.unwrap_or_default(), sampling);
    }
    options::check_think(body.think, service)?;
    let grammar = options::grammar(body.format.as_ref())?;
    let (system, prompt) = (given(body.system).map(Message::system), prompt.unwrap_or_default());
    // The ids of the answer are part of the context, and come with log probabilities only.
    let has_context = body.raw != Some(true) && suffix.is_none();
    let logprobs = logprobs.or(has_context.then_some(0));
    let sampling = SamplingOptions { logprobs, ..sampling };
    let prompt = match suffix {
        Some(suffix) => {
            let gap = InfillRequest { prefix: prompt, suffix, ..InfillRequest::default() };
            flow::prepare_infill(service, &gap, sampling, grammar)
        }
        None if body.raw == Some(true) => {
            let prompt = Prompt::Text(prompt);
            service.prepare_text(&TextRequest { prompt, add_special: true, sampling, grammar })
        }
        None => service.prepare_chat(&ChatRequest {
            messages: system.into_iter().chain([Message::user(prompt)]).collect(),
            template_kwargs: options::think_kwargs(body.think),
            earlier: body.context.unwrap_or_default(),
            sampling,
            grammar,
            ..ChatRequest::default()
        }),
    };
    let prompt = prompt.map_err(|error| HttpError::of(error, "prompt"))?;
    answer.warnings.extend(prompt.warnings());
    answer.context = has_context.then(|| prompt.prompt().to_vec());
    Ok(answer.generation(prompt, body.stream))
}

impl GenerateBody {
    fn check(&self) -> Result<(), HttpError> {
        let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let images = self.images.as_ref().is_some_and(|images| !images.is_empty());
        let raw = self.raw == Some(true) || given(&self.suffix);
        let system = raw && given(&self.system);
        // Clients may write every number that they were not given as 0.
        let size = |number: Option<i64>| number.is_some_and(|number| number != 0);
        let refusals = [
            (given(&self.template), "template", "is not supported"),
            (images, "images", "are not supported"),
            (size(self.width), "width", "is not supported"),
            (size(self.height), "height", "is not supported"),
            (size(self.steps), "steps", "is not supported"),
            (system, "system", "needs a template, which raw and suffix go without"),
            (raw && self.context.is_some(), "context", "cannot go with raw or suffix"),
        ];
        match refusals.into_iter().find(|(refused, ..)| *refused) {
            Some((_, param, problem)) => Err(HttpError::member(param, problem)),
            None => Ok(()),
        }
    }
}
