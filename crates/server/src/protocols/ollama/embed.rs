//! `POST /api/embed` and the older `/api/embeddings`.

use crate::generate::embeddings;
use crate::http::error::HttpError;
use crate::http::wire::{self, Texts};
use crate::protocols::ollama::duration::{self, KeepAlive};
use api::{Embed, Prompt, Service};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use utoipa::ToSchema;

/// Texts that vectors are wanted of.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct EmbedBody {
    /// Any name: one model is served.
    #[serde(rename = "model")]
    _model: Option<String>,
    /// A text, or several.
    input: Texts,
    /// Nothing is ever cut off a text, whatever this says.
    #[serde(rename = "truncate")]
    _truncate: Option<bool>,
    keep_alive: Option<KeepAlive>,
}

/// A text that a vector is wanted of.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct EmbeddingsBody {
    /// Any name: one model is served.
    #[serde(rename = "model")]
    _model: Option<String>,
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

/// How vectors of `/api/embed` are made.
pub(crate) const NORMALIZED: Embed = Embed { pooling: None, normalize: true };
/// How vectors of `/api/embeddings` are made.
pub(crate) const AS_THEY_ARE: Embed = Embed { pooling: None, normalize: false };

/// Reads a request for vectors.
pub(crate) fn read(service: &Service, body: &Value) -> Result<Vec<Prompt>, HttpError> {
    let body: EmbedBody = wire::read(body)?;
    duration::unloads(body.keep_alive.as_ref())?;
    let texts = body.input.all().into_iter().map(Prompt::Text);
    embeddings::prompts(service, texts.collect(), "input")
}

/// Reads a request for one vector.
pub(crate) fn read_one(service: &Service, body: &Value) -> Result<Vec<Prompt>, HttpError> {
    let body: EmbeddingsBody = wire::read(body)?;
    duration::unloads(body.keep_alive.as_ref())?;
    embeddings::prompts(service, vec![Prompt::Text(body.prompt)], "prompt")
}

/// The answer to a request that took so long.
pub(crate) fn answer(service: &Service, vectors: Vec<api::Embedding>, took: Duration) -> Embedded {
    Embedded {
        model: service.info().name.clone(),
        prompt_eval_count: embeddings::tokens(&vectors),
        embeddings: vectors.into_iter().map(|one| one.vector).collect(),
        total_duration: took.as_nanos() as u64,
        load_duration: 0,
    }
}

/// The answer to a request for one vector.
pub(crate) fn answer_one(vectors: Vec<api::Embedding>) -> Embedding {
    let one = vectors.into_iter().next();
    Embedding { embedding: one.map(|one| one.vector).unwrap_or_default() }
}
