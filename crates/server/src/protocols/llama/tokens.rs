//! `POST /tokenize`, `/detokenize` and `/apply-template`.

use crate::http::error::HttpError;
use crate::http::wire;
use crate::protocols::llama::prompt;
use crate::protocols::openai::chat;
use api::Service;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A text to be taken apart.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TokenizeBody {
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
pub(crate) struct DetokenizeBody {
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

/// Takes a text apart.
pub(crate) fn tokenize(service: &Service, body: &Value) -> Result<Tokens, HttpError> {
    let body: TokenizeBody = wire::read(body)?;
    let missing = || HttpError::invalid("content", "content is missing");
    let content = body.content.ok_or_else(missing)?;
    let (add, parse) = (body.add_special.unwrap_or(false), body.parse_special.unwrap_or(true));
    let ids = prompt::ids(&content, "content", service, add, parse)?;
    let with_pieces = body.with_pieces.unwrap_or(false);
    let token = |id: u32| {
        if !with_pieces {
            return Token::Id(id);
        }
        let piece = match String::from_utf8(service.tokenizer().token_bytes(id).to_vec()) {
            Ok(text) => TokenPiece::Text(text),
            Err(broken) => TokenPiece::Bytes(broken.into_bytes()),
        };
        Token::WithPiece { id, piece }
    };
    Ok(Tokens { tokens: ids.into_iter().map(token).collect() })
}

/// Puts tokens together, special ones as their text.
pub(crate) fn detokenize(service: &Service, body: &Value) -> Result<DetokenizedText, HttpError> {
    let body: DetokenizeBody = wire::read(body)?;
    let ids = body.tokens.ok_or_else(|| HttpError::invalid("tokens", "tokens is missing"))?;
    let size = service.info().vocab_size;
    if let Some(at) = ids.iter().position(|&id| id as usize >= size) {
        let path = format!("tokens[{at}]");
        let message = format!("{path} must be a token id below {size}, not {}", ids[at]);
        return Err(HttpError::invalid(path, message));
    }
    Ok(DetokenizedText { content: service.tokenizer().decode(&ids, false) })
}

/// Writes a conversation as the model reads it.
pub(crate) fn apply_template(service: &Service, body: &Value) -> Result<Rendered, HttpError> {
    let request = chat::read(body)?.request;
    let prompt = service.render(&request).map_err(|error| HttpError::of(error, "messages"))?;
    Ok(Rendered { prompt })
}
