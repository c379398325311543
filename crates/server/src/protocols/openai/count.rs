//! `POST /v1/chat/completions/input_tokens`: the length of a conversation's prompt, an extension of
//! llama.cpp's server.

use crate::generate::flow::{counted, prepare};
use crate::http::error::HttpError;
use crate::http::refusals::Refusals;
use crate::http::request::RequestContext;
use crate::protocols::openai::chat::{self, ChatCompletionRequest};
use crate::protocols::openai::problem::Problem;
use axum::Json;
use axum::body::Body;
use serde::Serialize;
use utoipa::ToSchema;

/// The length of a prompt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InputTokens {
    object: &'static str,
    input_tokens: usize,
}

impl InputTokens {
    /// The length of a prompt of so many tokens.
    pub fn of(input_tokens: usize) -> Self {
        Self { object: "response.input_tokens", input_tokens }
    }
}

/// How many tokens a conversation has; nothing is computed.
#[utoipa::path(post, path = "/v1/chat/completions/input_tokens", tag = "OpenAI",
    request_body = ChatCompletionRequest,
    responses((status = 200, body = InputTokens), Refusals<Problem>))]
pub(crate) async fn chat_input_tokens(
    context: RequestContext,
    body: Body,
) -> Result<Json<InputTokens>, HttpError> {
    let tokens = prepare(context, body, |service, body| {
        let call = chat::read(body)?;
        let service = service.for_options(&call.options).counting();
        counted(service.prepare_chat(&call.request)).map_err(|error| call.error(error))
    });
    let input_tokens = tokens.await?;
    Ok(Json(InputTokens::of(input_tokens)))
}
