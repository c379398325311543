//! `POST /api/embed` and the older `/api/embeddings`.

use crate::generate::embeddings::{TextOptions, compute, tokenized, tokens};
use crate::generate::flow::NamedModel;
use crate::generate::mixed_prompts::MixedPrompt;
use crate::http::error::HttpError;
use crate::http::refusals::Refusals;
use crate::http::request::{ModelContext, RequestContext};
use crate::http::wire::{self, Texts};
use crate::protocols::ollama::keep_alive::{self, KeepAliveTime};
use crate::protocols::ollama::refusal::Refusal;
use api::{Prompt, RequestOptions, Service};
use axum::Json;
use axum::body::Body;
use engine::Embed;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Instant;
use utoipa::ToSchema;

/// What a request asks for, and its texts.
type Asked = (Embed, Vec<Prompt>);

/// Texts to compute vectors of.
#[derive(Debug, Deserialize, ToSchema)]
struct EmbedBody {
    /// The name of a model; any name where one is served.
    #[serde(rename = "model")]
    _model: Option<String>,
    /// A text, or several, or none; an empty text alone is none.
    input: Option<Texts>,
    /// Leave out the ends of texts that are too long, which is the default, or refuse such texts.
    truncate: Option<bool>,
    /// Number of leading values of each vector that are kept.
    #[schema(minimum = 1)]
    dimensions: Option<usize>,
    /// How long the model stays loaded after this request.
    keep_alive: Option<KeepAliveTime>,
}

/// A text to compute a vector of; the end of one that is too long is left out.
#[derive(Debug, Deserialize, ToSchema)]
struct EmbeddingsBody {
    /// The name of a model; any name where one is served.
    #[serde(rename = "model")]
    _model: Option<String>,
    prompt: String,
    /// How long the model stays loaded after this request.
    keep_alive: Option<KeepAliveTime>,
}

/// Vectors of length 1.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Embedded {
    model: String,
    embeddings: Vec<Vec<f32>>,
    /// Nanoseconds.
    total_duration: u64,
    /// Nanoseconds; the model is there already.
    load_duration: u64,
    prompt_eval_count: usize,
}

/// A vector as it comes from the model.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Embedding {
    embedding: Vec<f32>,
}

/// Vectors of texts.
#[utoipa::path(
    post, path = "/api/embed", tag = "Ollama", request_body = EmbedBody,
    responses((status = 200, body = Embedded), Refusals<Refusal>)
)]
pub(crate) async fn embed(
    context: RequestContext,
    body: Body,
) -> Result<Json<Embedded>, HttpError> {
    let start = Instant::now();
    let (context, vectors) = vectors(context, body, |service, body| {
        let body: EmbedBody = wire::read(body)?;
        keep_alive::unloads(body.keep_alive.as_ref())?;
        if body.dimensions == Some(0) {
            return Err(HttpError::member("dimensions", "must be at least 1"));
        }
        let embed = Embed { normalize: true, dimensions: body.dimensions, ..Embed::default() };
        let most_tokens = body.truncate.unwrap_or(true).then_some(usize::MAX);
        let options = TextOptions { embed, prompt_name: None, most_tokens };
        match body.input {
            None => Ok((embed, Vec::new())),
            Some(Texts::One(text)) if text.is_empty() => Ok((embed, Vec::new())),
            Some(Texts::Many(none)) if none.is_empty() => Ok((embed, Vec::new())),
            Some(some) => texts(service, some.all(), "input", options),
        }
    })
    .await?;
    Ok(Json(Embedded {
        model: context.service().info().name.clone(),
        prompt_eval_count: tokens(&vectors),
        embeddings: vectors.into_iter().map(|one| one.vector).collect(),
        total_duration: start.elapsed().as_nanos() as u64,
        load_duration: 0,
    }))
}

/// The vector of a text.
#[utoipa::path(
    post, path = "/api/embeddings", tag = "Ollama", request_body = EmbeddingsBody,
    responses((status = 200, body = Embedding), Refusals<Refusal>)
)]
pub(crate) async fn embeddings(
    context: RequestContext,
    body: Body,
) -> Result<Json<Embedding>, HttpError> {
    let (_, vectors) = vectors(context, body, |service, body| {
        let body: EmbeddingsBody = wire::read(body)?;
        keep_alive::unloads(body.keep_alive.as_ref())?;
        let options = TextOptions { most_tokens: Some(usize::MAX), ..TextOptions::default() };
        texts(service, vec![body.prompt], "prompt", options)
    })
    .await?;
    let one = vectors.into_iter().next();
    Ok(Json(Embedding { embedding: one.map(|one| one.vector).unwrap_or_default() }))
}

/// The ids of texts, and what is computed of them.
fn texts(
    service: &Service,
    texts: Vec<String>,
    param: &str,
    options: TextOptions<'_>,
) -> Result<Asked, HttpError> {
    let texts = texts.into_iter().enumerate();
    let texts = texts.map(|(at, text)| MixedPrompt::of_text(text, format!("{param}[{at}]")));
    Ok((options.embed, tokenized(service, texts.collect(), param, &options)?))
}

async fn vectors(
    context: RequestContext,
    body: Body,
    read: fn(&Service, &Value) -> Result<Asked, HttpError>,
) -> Result<(ModelContext, Vec<api::Embedding>), HttpError> {
    let named = NamedModel::read(&context.app, body).await?;
    let keep_alive = keep_alive::of_body(named.body());
    let (context, (embed, prompts)) =
        named.prepare(context, move |model, body| read(&model.service, body)).await?;
    if let Some(time) = keep_alive {
        context.model.keep(time);
    }
    let vectors = compute(&context, prompts, embed, RequestOptions::default()).await?;
    Ok((context, vectors))
}
