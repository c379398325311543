//! The routes of Anthropic's API.

use crate::generate::choices::RequestNames;
use crate::generate::delivery;
use crate::generate::flow::{counted, prepare, start};
use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::fallback::unknown_route;
use crate::http::refusals::Refusals;
use crate::http::request::{self, RequestId};
use crate::protocols::anthropic::answer::MessageAnswer;
use crate::protocols::anthropic::chat;
use crate::protocols::anthropic::errors::ErrorBody;
use crate::protocols::anthropic::request::{Conversation, MessageRequest};
use crate::protocols::anthropic::response::{MessageResponse, StreamEvent, TokenCount};
use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::Response;
use std::time::Duration;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Longest silence of a stream: clients give one up that says nothing for 15 s.
const MAX_SILENCE: Duration = Duration::from_secs(10);

/// All of them.
pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Errors::openapi())
        .routes(routes!(messages))
        .routes(routes!(count_tokens))
        .nest("/v1/messages/", OpenApiRouter::new().fallback(unknown_route))
}

/// The schema of errors, to which refusals refer.
#[derive(OpenApi)]
#[openapi(components(schemas(ErrorBody)))]
struct Errors;

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
async fn messages(
    State(app): State<App>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, HttpError> {
    let (call, prompt) = prepare(&app, body, |service, body| {
        let call = chat::read(&body)?;
        let prompt = service
            .prepare_chat(&call.request)
            .map_err(|error| HttpError::of(error, "messages"))?;
        Ok((call, prompt))
    })
    .await?;
    let answer = MessageAnswer::new(&app.service.info().name, prompt.prompt().len(), call.caches);
    let options = request::on_behalf(call.options, &headers);
    let names = RequestNames { request: id, answer: answer.id().to_owned() };
    let choices = start(&app, &[prompt], 1, names, &options)?;
    if call.stream {
        let silence = app.options.keep_alive.min(MAX_SILENCE);
        return Ok(delivery::streamed(choices, answer, silence));
    }
    delivery::whole(choices, answer).await
}

/// How many tokens a conversation has, also where the context does not hold them.
#[utoipa::path(
    post, path = "/v1/messages/count_tokens", tag = "Anthropic", request_body = Conversation,
    responses(
        (status = 200, body = TokenCount),
        Refusals<ErrorBody>,
    ),
)]
async fn count_tokens(State(app): State<App>, body: Body) -> Result<Json<TokenCount>, HttpError> {
    let input_tokens = prepare(&app, body, |service, body| {
        counted(service.prepare_chat(&chat::read_prompt(&body)?))
            .map_err(|error| HttpError::of(error, "messages"))
    });
    Ok(Json(TokenCount { input_tokens: input_tokens.await? }))
}
