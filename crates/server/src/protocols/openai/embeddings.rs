//! `POST /v1/embeddings`: vectors of texts.

use crate::generate::embeddings::{self, EmbeddingPooling, TextOptions};
use crate::generate::flow::prepare_within;
use crate::generate::mixed_prompts::{self, MixedPrompt, MixedPrompts};
use crate::http::error::HttpError;
use crate::http::refusals::Refusals;
use crate::http::request::RequestContext;
use crate::http::wire;
use crate::protocols::openai::problem::Problem;
use crate::protocols::unsupported::{self, Unsupported, is_off, is_on, is_word};
use api::{Embedding, RequestOptions};
use axum::Json;
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::Embed;
use formats::Pooling;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// What is to become vectors.
#[derive(Debug, Deserialize, ToSchema)]
struct EmbeddingRequest {
    /// The name of a model; any name where one is served.
    #[serde(rename = "model")]
    _model: Option<String>,
    /// One text or up to 2048, also as token ids or as ids and texts.
    #[schema(value_type = MixedPrompts)]
    input: Option<MixedPrompts>,
    encoding_format: Option<Encoding>,
    /// Number of leading values of each vector to keep; the vector is normalised afterwards. Only
    /// for models trained for this (Matryoshka representations).
    #[schema(minimum = 1)]
    dimensions: Option<usize>,
    /// The user of the request: the users of a key share its part of the machine evenly.
    user: Option<String>,
    /// How the states of a text's tokens become one; an extension. As the checkpoint says by
    /// default, or that of the last token.
    pooling: Option<EmbeddingPooling>,
    /// Divide vectors by their length; true by default; an extension.
    normalize: Option<bool>,
    /// The name of the checkpoint's prompt that is put before each text; an extension.
    prompt_name: Option<String>,
    /// Leave out the ends of texts that are too long; false by default; an extension.
    #[serde(default)]
    truncate: bool,
    /// Leave out what exceeds this many tokens, special ones included, of a text; -1 for
    /// what the context holds; as in vLLM.
    #[schema(minimum = -1)]
    truncate_prompt_tokens: Option<i64>,
}

/// How vectors are written: as numbers, or as base64 of 32-bit floats, the lowest byte first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = EmbeddingEncoding)]
enum Encoding {
    #[default]
    Float,
    Base64,
}

/// The vectors, in the order of their texts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EmbeddingList {
    object: &'static str,
    data: Vec<EmbeddingItem>,
    model: String,
    usage: EmbeddingUsage,
}

/// A vector.
#[derive(Debug, Serialize, ToSchema)]
struct EmbeddingItem {
    object: &'static str,
    index: usize,
    embedding: Vector,
}

/// As it was asked for.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = EmbeddingVector)]
enum Vector {
    Numbers(Vec<f32>),
    Base64(String),
}

/// Token counts.
#[derive(Debug, Serialize, ToSchema)]
struct EmbeddingUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

/// Vectors of texts.
#[utoipa::path(post, path = "/v1/embeddings", tag = "OpenAI", request_body = EmbeddingRequest,
    responses((status = 200, body = EmbeddingList), Refusals<Problem>))]
pub(crate) async fn embed(
    context: RequestContext,
    body: Body,
) -> Result<Json<EmbeddingList>, HttpError> {
    let asked = prepare_within(context, body, |service, body| {
        let (asked, prompts) = read(body)?;
        let options = TextOptions {
            embed: asked.embed(),
            prompt_name: asked.prompt_name.as_deref(),
            most_tokens: embeddings::most_tokens(asked.truncate, asked.truncate_prompt_tokens)?,
        };
        let prompts = embeddings::tokenized(service, prompts, "input", &options)?;
        Ok((asked, prompts))
    });
    let (context, (asked, prompts)) = asked.await?;
    let embed = asked.embed();
    let options = RequestOptions { user: asked.user, ..RequestOptions::default() };
    let vectors = embeddings::compute(&context, prompts, embed, options).await?;
    let tokens = embeddings::tokens(&vectors);
    let encoding = asked.encoding_format.unwrap_or_default();
    let item = |(index, Embedding { vector, .. }): (usize, Embedding)| {
        let embedding = match encoding {
            Encoding::Float => Vector::Numbers(vector),
            Encoding::Base64 => {
                let bytes = vector.iter().flat_map(|value| value.to_le_bytes());
                Vector::Base64(STANDARD.encode(bytes.collect::<Vec<u8>>()))
            }
        };
        EmbeddingItem { object: "embedding", index, embedding }
    };
    Ok(Json(EmbeddingList {
        object: "list",
        data: vectors.into_iter().enumerate().map(item).collect(),
        model: context.service().info().name.clone(),
        usage: EmbeddingUsage { prompt_tokens: tokens, total_tokens: tokens },
    }))
}

/// Members of vLLM that change the vectors and are not supported.
const REFUSED: [Unsupported; 5] = [
    ("add_special_tokens", is_on),
    ("embed_dtype", |value| is_word(value, &["float32"])),
    ("endianness", |value| is_word(value, &["native", "little"])),
    ("truncation_side", |value| is_word(value, &["right"])),
    ("messages", is_off),
];

fn read(body: &Value) -> Result<(EmbeddingRequest, Vec<MixedPrompt>), HttpError> {
    let asked: EmbeddingRequest = wire::read(body)?;
    unsupported::refuse(body, &REFUSED)?;
    let input = asked.input.as_ref().ok_or_else(|| wire::missing("input"))?;
    let prompts = mixed_prompts::read(input, "input")?;
    embeddings::count(prompts.len(), "input")?;
    match asked.dimensions {
        Some(0) => Err(HttpError::member("dimensions", "must be at least 1")),
        _ => Ok((asked, prompts)),
    }
}

impl EmbeddingRequest {
    fn embed(&self) -> Embed {
        let pooling = self.pooling.map(Pooling::from);
        let normalize = self.normalize.unwrap_or(true);
        Embed { pooling, normalize, dimensions: self.dimensions, scores: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wishes_are_read() {
        let (asked, prompts) = read(&json!({"input": ["a", "b"], "pooling": "mean",
            "normalize": false, "encoding_format": "base64", "dimensions": 2.0, "user": "u"}))
        .unwrap();
        assert_eq!(prompts.len(), 2);
        let dimensions = Some(2);
        let embed = Embed { pooling: Some(Pooling::Mean), dimensions, ..Embed::default() };
        assert_eq!(asked.embed(), embed);
        assert_eq!((asked.encoding_format, asked.user), (Some(Encoding::Base64), Some("u".into())));
        let (plain, prompts) = read(&json!({"input": [1, 2]})).unwrap();
        assert_eq!(plain.embed(), Embed { normalize: true, ..Embed::default() });
        assert_eq!(prompts.len(), 1);
    }

    #[test]
    fn what_cannot_be_embedded_is_named() {
        let check = |body: Value, param: &str| {
            let error = read(&body).expect_err(&body.to_string());
            assert_eq!(error.body()["error"]["param"], param, "{body}");
        };
        check(json!({}), "input");
        check(json!({"input": []}), "input");
        check(json!({"input": [[{}]]}), "input[0][0]");
        check(json!({"input": vec!["a"; embeddings::MAX_TEXTS + 1]}), "input");
        check(json!({"input": "a", "dimensions": 0}), "dimensions");
        check(json!({"input": "a", "encoding_format": "hex"}), "encoding_format");
        check(json!({"input": "a", "pooling": "median"}), "pooling");
        check(json!({"input": "a", "add_special_tokens": false}), "add_special_tokens");
        check(json!({"input": "a", "embed_dtype": "float16"}), "embed_dtype");
        check(json!({"input": "a", "endianness": "big"}), "endianness");
        check(json!({"input": "a", "truncation_side": "left"}), "truncation_side");
        check(json!({"input": "a", "messages": [{}]}), "messages");
    }
}
