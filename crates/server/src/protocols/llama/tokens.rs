//! `POST /tokenize`, `/detokenize` and `/apply-template`, and prompts in the many forms that
//! llama.cpp's server takes: text, ids, both mixed, and several.

use crate::generate::flow::prepare;
use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::fields::{ObjectReader, wrong};
use crate::http::request::RequestContext;
use crate::http::wire;
use crate::protocols::openai::chat::{self, ChatCompletionRequest};
use api::{EncodeOptions, Service};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A text to be taken apart.
#[derive(Debug, Deserialize, ToSchema)]
struct TokenizeBody {
    /// A string, or an array of strings and token ids.
    content: Option<Value>,
    /// Add the tokens that a text of this model begins with.
    add_special: Option<bool>,
    /// Turn the text of a special token into that token; so it is unless this is false.
    parse_special: Option<bool>,
    /// Tell the text of each token.
    with_pieces: Option<bool>,
}

/// Its tokens.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LlamaTokens)]
pub(crate) struct Tokens {
    tokens: Vec<Token>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum Token {
    Id(u32),
    WithPiece { id: u32, piece: TokenPiece },
}

/// The text of a token, or its bytes where they are none.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = LlamaTokenText)]
enum TokenPiece {
    Text(String),
    Bytes(Vec<u8>),
}

/// Tokens to be put together.
#[derive(Debug, Deserialize, ToSchema)]
struct DetokenizeBody {
    tokens: Option<Vec<u32>>,
}

/// Their text.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Content)]
pub(crate) struct DetokenizedText {
    content: String,
}

/// What the model reads.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Rendered {
    prompt: String,
}

/// The tokens of a text.
#[utoipa::path(
    post, path = "/tokenize", tag = "llama.cpp", request_body = TokenizeBody,
    responses((status = 200, body = Tokens), (status = 400))
)]
pub(crate) async fn tokenize(
    State(app): State<App>,
    body: Body,
) -> Result<Json<Tokens>, HttpError> {
    let tokens = prepare(&app, body, |service, body| {
        let body: TokenizeBody = wire::read(body)?;
        let content = body.content.ok_or_else(|| wire::missing("content"))?;
        let (add, parse) = (body.add_special.unwrap_or(false), body.parse_special.unwrap_or(true));
        let with_pieces = body.with_pieces.unwrap_or(false);
        let token = |id: u32| match with_pieces {
            false => Token::Id(id),
            true => Token::WithPiece { id, piece: TokenPiece::of(service, id) },
        };
        let ids = ids(&content, "content", service, add, parse)?;
        Ok(Tokens { tokens: ids.into_iter().map(token).collect() })
    });
    tokens.await.map(Json)
}

impl TokenPiece {
    fn of(service: &Service, id: u32) -> Self {
        let bytes = service.tokenizer().token_bytes(id).to_vec();
        String::from_utf8(bytes).map_or_else(|broken| Self::Bytes(broken.into_bytes()), Self::Text)
    }
}

/// The text of tokens.
#[utoipa::path(
    post, path = "/detokenize", tag = "llama.cpp", request_body = DetokenizeBody,
    responses((status = 200, body = DetokenizedText), (status = 400))
)]
pub(crate) async fn detokenize(
    State(app): State<App>,
    body: Body,
) -> Result<Json<DetokenizedText>, HttpError> {
    let text = prepare(&app, body, |service, body| {
        let body: DetokenizeBody = wire::read(body)?;
        let ids = body.tokens.ok_or_else(|| wire::missing("tokens"))?;
        let size = service.info().vocab_size;
        if let Some(at) = ids.iter().position(|&id| id as usize >= size) {
            let problem = format!("must be a token id below {size}, not {}", ids[at]);
            return Err(HttpError::member(&format!("tokens[{at}]"), problem));
        }
        // Special tokens appear as their text.
        Ok(DetokenizedText { content: service.tokenizer().decode(&ids, false) })
    });
    text.await.map(Json)
}

/// A conversation as the model reads it.
#[utoipa::path(
    post, path = "/apply-template", tag = "llama.cpp", request_body = ChatCompletionRequest,
    responses((status = 200, body = Rendered), (status = 400))
)]
pub(crate) async fn apply_template(
    context: RequestContext,
    body: Body,
) -> Result<Json<Rendered>, HttpError> {
    let rendered = prepare(&context.app, body, |service, body| {
        let call = chat::read(body)?;
        let prompt = service.for_options(&call.options).render(&call.request);
        let prompt = prompt.map_err(|error| HttpError::of(error, "messages"))?;
        Ok(Rendered { prompt })
    });
    rendered.await.map(Json)
}

/// The prompts that `value` holds. An array with a number in it is one prompt.
pub(crate) fn prompts(value: &Value, service: &Service) -> Result<Vec<Vec<u32>>, HttpError> {
    match value {
        Value::Array(items) if items.is_empty() => {
            Err(HttpError::member("prompt", "is an empty array"))
        }
        Value::Array(items) if !items.iter().any(Value::is_number) => {
            let one = |(at, item): (usize, &Value)| single(item, &format!("prompt[{at}]"), service);
            items.iter().enumerate().map(one).collect()
        }
        other => Ok(vec![single(other, "prompt", service)?]),
    }
}

fn single(value: &Value, path: &str, service: &Service) -> Result<Vec<u32>, HttpError> {
    if !value.is_object() {
        return ids(value, path, service, true, true);
    }
    let fields = ObjectReader::of(value, path)?;
    if fields.array("multimodal_data")?.is_some_and(|data| !data.is_empty()) {
        return Err(HttpError::at(&fields.path("multimodal_data"), "only text is supported"));
    }
    let param = fields.path("prompt_string");
    let text = fields.value("prompt_string").ok_or_else(|| wire::missing(&param))?;
    ids(text, &param, service, true, true)
}

/// The ids of a text, or of an array of texts and ids. Only a text that comes first gets what a
/// text begins with.
pub(crate) fn ids(
    value: &Value,
    path: &str,
    service: &Service,
    add_special: bool,
    parse_special: bool,
) -> Result<Vec<u32>, HttpError> {
    let encode = |text: &str, add_special: bool| {
        let options = EncodeOptions { add_special, parse_special };
        service.tokenize(text, options).map_err(|error| HttpError::of(error, path))
    };
    let items = match value {
        Value::String(text) => return encode(text, add_special),
        Value::Array(items) => items,
        other => return Err(wrong(path, "a string or an array of strings and token ids", other)),
    };
    let mut ids = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        match item {
            Value::String(text) => ids.extend(encode(text, add_special && at == 0)?),
            other => ids.push(id(other, &format!("{path}[{at}]"))?),
        }
    }
    Ok(ids)
}

/// `value` as a token id.
pub(crate) fn id(value: &Value, path: &str) -> Result<u32, HttpError> {
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| wrong(path, "a string or a token id", value))
}
