//! `POST /tokenize`, `/detokenize` and `/apply-template`.

use crate::generate::flow::prepare;
use crate::generate::mixed_prompts;
use crate::http::error::HttpError;
use crate::http::request::RequestContext;
use crate::http::wire;
use crate::protocols::openai::chat::{self, ChatCompletionRequest};
use api::Service;
use axum::Json;
use axum::body::Body;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use text::EncodeOptions;
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
    /// Return the text of each token.
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

/// A conversation to be rendered, in the document; its parts are read one by one.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct TemplateBody {
    #[serde(flatten)]
    chat: ChatCompletionRequest,
    #[serde(flatten)]
    shown: TemplateTokens,
}

/// What is returned of a rendered conversation besides its text.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct TemplateTokens {
    /// Return the tokens too, in which the text of a special token within a message is text; an
    /// extension.
    return_tokens: Option<bool>,
}

/// What the model reads.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Rendered {
    prompt: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<Vec<u32>>,
}

/// The tokens of a text.
#[utoipa::path(
    post, path = "/tokenize", tag = "llama.cpp", request_body = TokenizeBody,
    responses((status = 200, body = Tokens), (status = 400))
)]
pub(crate) async fn tokenize(
    context: RequestContext,
    body: Body,
) -> Result<Json<Tokens>, HttpError> {
    let tokens = prepare(context, body, |service, body| {
        let body: TokenizeBody = wire::read(body)?;
        let content = body.content.ok_or_else(|| wire::missing("content"))?;
        let (add, parse) = (body.add_special.unwrap_or(false), body.parse_special.unwrap_or(true));
        let with_pieces = body.with_pieces.unwrap_or(false);
        let token = |id: u32| match with_pieces {
            false => Token::Id(id),
            true => Token::WithPiece { id, piece: TokenPiece::of(service, id) },
        };
        let options = EncodeOptions { add_special: add, parse_special: parse };
        let service = &service.counting();
        let content = mixed_prompts::mixed(&content, "content")?;
        let ids = content
            .ids_with(options, |text, it, before| service.prompt_tokens(text, it, before))?;
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
    context: RequestContext,
    body: Body,
) -> Result<Json<DetokenizedText>, HttpError> {
    let text = prepare(context, body, |service, body| {
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
    post, path = "/apply-template", tag = "llama.cpp", request_body = TemplateBody,
    responses((status = 200, body = Rendered), (status = 400))
)]
pub(crate) async fn apply_template(
    context: RequestContext,
    body: Body,
) -> Result<Json<Rendered>, HttpError> {
    let rendered = prepare(context, body, |service, body| {
        let call = chat::read(body)?;
        let shown: TemplateTokens = wire::read(body)?;
        let (service, request) = (service.for_options(&call.options).counting(), &call.request);
        let wrong = |error| HttpError::of(error, "messages");
        let prompt = service.render(request).map_err(wrong)?;
        let tokens = (shown.return_tokens == Some(true)).then(|| service.prepare_chat(request));
        let tokens = tokens.transpose().map_err(wrong)?.map(|it| it.prompt().to_vec());
        Ok(Rendered { prompt, tokens })
    });
    rendered.await.map(Json)
}
