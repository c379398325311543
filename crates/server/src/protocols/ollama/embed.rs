//! `POST /api/embed` and the older `/api/embeddings`.

use crate::generate::embeddings::{compute, prompts, tokens};
use crate::generate::flow::prepare;
use crate::http::error::HttpError;
use crate::http::refusals::Refusals;
use crate::http::request::RequestContext;
use crate::http::wire::{self, Texts};
use crate::protocols::ollama::Refusal;
use crate::protocols::ollama::duration::{self, KeepAlive};
use api::{Embed, Prompt, RequestOptions, Service};
use axum::Json;
use axum::body::Body;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Instant;
use utoipa::ToSchema;

/// Texts to compute vectors of.
#[derive(Debug, Deserialize, ToSchema)]
#[allow(dead_code, reason = "of some members only the type is checked")]
struct EmbedBody {
    /// Any name: one model is served.
    model: Option<String>,
    /// A text, or several.
    input: Texts,
    /// Nothing is ever cut off a text, whatever this says.
    truncate: Option<bool>,
    keep_alive: Option<KeepAlive>,
}

/// A text to compute a vector of.
#[derive(Debug, Deserialize, ToSchema)]
#[allow(dead_code, reason = "of some members only the type is checked")]
struct EmbeddingsBody {
    /// Any name: one model is served.
    model: Option<String>,
    prompt: String,
    keep_alive: Option<KeepAlive>,
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
    let vectors = vectors(&context, body, true, |service, body| {
        let body: EmbedBody = wire::read(body)?;
        duration::unloads(body.keep_alive.as_ref())?;
        prompts(service, body.input.all().into_iter().map(Prompt::Text).collect(), "input")
    });
    let vectors = vectors.await?;
    Ok(Json(Embedded {
        model: context.app.service.info().name.clone(),
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
    let vectors = vectors(&context, body, false, |service, body| {
        let body: EmbeddingsBody = wire::read(body)?;
        duration::unloads(body.keep_alive.as_ref())?;
        prompts(service, vec![Prompt::Text(body.prompt)], "prompt")
    });
    let one = vectors.await?.into_iter().next();
    Ok(Json(Embedding { embedding: one.map(|one| one.vector).unwrap_or_default() }))
}

async fn vectors(
    context: &RequestContext,
    body: Body,
    normalize: bool,
    read: fn(&Service, &Value) -> Result<Vec<Prompt>, HttpError>,
) -> Result<Vec<api::Embedding>, HttpError> {
    let prompts = prepare(&context.app, body, read).await?;
    compute(context, prompts, Embed { normalize, ..Embed::default() }, RequestOptions::default())
        .await
}
