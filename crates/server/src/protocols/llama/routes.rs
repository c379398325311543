//! The routes of llama.cpp's server.

use crate::generate::flow::{generate, prepare};
use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::request::RequestContext;
use crate::protocols::llama::answer::{AnswerPiece, Completions};
use crate::protocols::llama::completion::{self, CompletionBody};
use crate::protocols::llama::infill::{self, InfillBody};
use crate::protocols::llama::props::{self, Props, Slot};
use crate::protocols::llama::tokens::{
    self, DetokenizeBody, DetokenizedText, Rendered, TokenizeBody, Tokens,
};
use crate::protocols::openai::chat::ChatCompletionRequest;
use axum::Json;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::post;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// All of them.
pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(tokenize))
        .routes(routes!(detokenize))
        .routes(routes!(apply_template))
        .routes(routes!(complete))
        .routes(routes!(fill))
        .routes(routes!(properties))
        .routes(routes!(slots))
        .route("/completions", post(complete))
}

/// The tokens of a text.
#[utoipa::path(
    post, path = "/tokenize", tag = "llama.cpp", request_body = TokenizeBody,
    responses((status = 200, body = Tokens), (status = 400))
)]
async fn tokenize(State(app): State<App>, body: Body) -> Result<Json<Tokens>, HttpError> {
    prepare(&app, body, tokens::tokenize).await.map(Json)
}

/// The text of tokens.
#[utoipa::path(
    post, path = "/detokenize", tag = "llama.cpp", request_body = DetokenizeBody,
    responses((status = 200, body = DetokenizedText), (status = 400))
)]
async fn detokenize(
    State(app): State<App>,
    body: Body,
) -> Result<Json<DetokenizedText>, HttpError> {
    prepare(&app, body, tokens::detokenize).await.map(Json)
}

/// A conversation as the model reads it.
#[utoipa::path(
    post, path = "/apply-template", tag = "llama.cpp", request_body = ChatCompletionRequest,
    responses((status = 200, body = Rendered), (status = 400))
)]
async fn apply_template(State(app): State<App>, body: Body) -> Result<Json<Rendered>, HttpError> {
    prepare(&app, body, tokens::apply_template).await.map(Json)
}

/// The continuation of one or several texts.
#[utoipa::path(
    post, path = "/completion", tag = "llama.cpp", request_body = CompletionBody,
    responses(
        (status = 200, content(
            (Completions = "application/json"), (AnswerPiece = "text/event-stream"))),
        (status = 400)
    )
)]
async fn complete(context: RequestContext, body: Body) -> Result<Response, HttpError> {
    generate(context, body, completion::read).await
}

/// What is missing in the middle of a text.
#[utoipa::path(
    post, path = "/infill", tag = "llama.cpp", request_body = InfillBody,
    responses(
        (status = 200, content(
            (Completions = "application/json"), (AnswerPiece = "text/event-stream"))),
        (status = 400), (status = 501)
    )
)]
async fn fill(context: RequestContext, body: Body) -> Result<Response, HttpError> {
    generate(context, body, infill::read).await
}

/// What the server is.
#[utoipa::path(
    get, path = "/props", tag = "llama.cpp", responses((status = 200, body = Props))
)]
async fn properties(State(app): State<App>) -> Json<Props> {
    Json(props::props(&app.service))
}

/// The places for answers, and which of them are taken.
#[utoipa::path(
    get, path = "/slots", tag = "llama.cpp",
    responses((status = 200, body = Vec<Slot>), (status = 503, description = "No slot is free"))
)]
async fn slots(
    State(app): State<App>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Json<Vec<Slot>>, HttpError> {
    let free = query.iter().any(|(name, value)| name == "fail_on_no_slot" && value == "1");
    props::slots(&app.service, free).map(Json)
}
