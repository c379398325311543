//! The routes of Anthropic's API.

use crate::generate::flow::{Delivery, Generation, Reply, counted, generate, prepare};
use crate::http::error::HttpError;
use crate::http::refusals::Refusals;
use crate::http::request::RequestContext;
use crate::protocols::anthropic::answer::MessageAnswer;
use crate::protocols::anthropic::chat;
use crate::protocols::anthropic::request::{Conversation, MessageRequest};
use crate::protocols::anthropic::response::{
    ErrorBody, MessageResponse, OriginalCount, StreamEvent, TokenCount,
};
use api::Service;
use axum::Json;
use axum::body::Body;
use axum::response::Response;
use serde_json::Value;

/// The next message of a conversation.
#[utoipa::path(
    post, path = "/v1/messages", tag = "Anthropic", request_body = MessageRequest,
    responses(
        (status = 200, content(
            (MessageResponse = "application/json"),
            (StreamEvent = "text/event-stream"),
        )),
        Refusals<ErrorBody>,
    ),
)]
pub(crate) async fn messages(context: RequestContext, body: Body) -> Result<Response, HttpError> {
    generate(context, body, generation).await
}

fn generation(service: &Service, body: &Value) -> Result<Reply<MessageAnswer>, HttpError> {
    let mut call = chat::read(body)?;
    let (prompt, applied) = call.prepare(service)?;
    let prompt = prompt.map_err(|error| HttpError::of(error, "messages"))?;
    let mut answer = MessageAnswer::new(&service.info().name, prompt.prompt().len(), call.caches);
    answer.omits_thinking = call.omits_thinking;
    answer.message.context_management = applied;
    answer.message.warnings = call.warnings;
    Ok(Reply::Generate(Box::new(Generation {
        prompts: vec![prompt],
        per_prompt: 1,
        options: call.options,
        id: answer.message.id.clone(),
        answer,
        delivery: Delivery::of(call.stream),
    })))
}

/// How many tokens a conversation has, also where the context does not hold them.
#[utoipa::path(
    post, path = "/v1/messages/count_tokens", tag = "Anthropic", request_body = Conversation,
    responses(
        (status = 200, body = TokenCount),
        Refusals<ErrorBody>,
    ),
)]
pub(crate) async fn count_tokens(
    context: RequestContext,
    body: Body,
) -> Result<Json<TokenCount>, HttpError> {
    let count = prepare(context, body, |service, body| {
        let mut call = chat::counted(body)?;
        let (prompt, applied) = call.prepare(&service.counting())?;
        let input_tokens = counted(prompt).map_err(|error| HttpError::of(error, "messages"))?;
        let context_management = applied.map(|applied| OriginalCount {
            original_input_tokens: input_tokens + applied.cleared_input_tokens(),
        });
        Ok(TokenCount { input_tokens, context_management, warnings: call.warnings })
    });
    Ok(Json(count.await?))
}
