//! `POST /embedding` and `POST /embeddings`: vectors of texts, in the form that llama.cpp's server
//! had before OpenAI's.

use crate::generate::embeddings::{self, EmbeddingPooling, TextOptions};
use crate::generate::flow::prepare_within;
use crate::generate::mixed_prompts::{self, MixedPrompts};
use crate::http::error::HttpError;
use crate::http::request::RequestContext;
use crate::http::wire;
use api::{Prompt, RequestOptions, Service};
use axum::Json;
use axum::body::Body;
use engine::Embed;
use formats::Pooling;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// What is to become vectors.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = LlamaEmbeddingBody)]
struct EmbeddingBody {
    /// One text or up to 2048, also as token ids or as ids and texts.
    input: Option<MixedPrompts>,
    /// As `input`, which goes first.
    content: Option<MixedPrompts>,
    /// 2 divides vectors by their length, which is the default; -1 leaves them as they are.
    #[schema(minimum = -1, maximum = 2)]
    embd_normalize: Option<i64>,
    /// How the states of a text's tokens become one; an extension.
    pooling: Option<EmbeddingPooling>,
}

/// A vector.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LlamaEmbedding)]
pub(crate) struct NumberedEmbedding {
    index: usize,
    /// One row, because the states of a text become one.
    embedding: [Vec<f32>; 1],
}

/// Vectors of texts.
#[utoipa::path(
    post, path = "/embedding", tag = "llama.cpp", request_body = EmbeddingBody,
    responses((status = 200, body = Vec<NumberedEmbedding>), (status = 400))
)]
pub(crate) async fn embed(
    context: RequestContext,
    body: Body,
) -> Result<Json<Vec<NumberedEmbedding>>, HttpError> {
    let (context, (embed, prompts)) = prepare_within(context, body, read).await?;
    let options = RequestOptions::default();
    let vectors = embeddings::compute(&context, prompts, embed, options).await?;
    let numbered = vectors.into_iter().enumerate();
    let item = |(index, one): (usize, api::Embedding)| NumberedEmbedding {
        index,
        embedding: [one.vector],
    };
    Ok(Json(numbered.map(item).collect()))
}

fn read(service: &Service, body: &Value) -> Result<(Embed, Vec<Prompt>), HttpError> {
    let body: EmbeddingBody = wire::read(body)?;
    let normalize = match body.embd_normalize {
        None | Some(2) => true,
        Some(-1) => false,
        Some(other) => {
            let problem = format!("must be -1 for none or 2 for the Euclidean norm, not {other}");
            return Err(HttpError::member("embd_normalize", problem));
        }
    };
    let (texts, name) = match (&body.input, &body.content) {
        (Some(input), _) => (input, "input"),
        (None, Some(content)) => (content, "content"),
        (None, None) => return Err(wire::missing("input")),
    };
    let texts = mixed_prompts::read(texts, name)?;
    let embed = Embed { pooling: body.pooling.map(Pooling::from), normalize, ..Embed::default() };
    let options = TextOptions { embed, ..TextOptions::default() };
    Ok((embed, embeddings::tokenized(service, texts, name, &options)?))
}
