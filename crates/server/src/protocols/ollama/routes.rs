//! The routes of Ollama's API.

use crate::generate::embeddings::compute;
use crate::generate::flow::{self, prepare};
use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::fallback::unknown_route;
use crate::http::refusals::Refusals;
use crate::http::request::RequestContext;
use crate::protocols::ollama::chat::{self, ChatBody};
use crate::protocols::ollama::embed::{self, EmbedBody, Embedded, Embedding, EmbeddingsBody};
use crate::protocols::ollama::generate::{self, GenerateBody};
use crate::protocols::ollama::line::{ChatLine, GenerateLine};
use crate::protocols::ollama::models::{self, ModelTags, Running, Shown};
use crate::protocols::ollama::refusal::Refusal;
use api::{Embed, Prompt, RequestOptions, Service};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::any;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Instant;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Paths of what a server of one model cannot do.
const OTHER_MODELS: [&str; 6] =
    ["/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete", "/api/blobs/{digest}"];

/// All of them.
pub(crate) fn routes() -> OpenApiRouter<App> {
    let router = OpenApiRouter::new()
        .routes(routes!(chat))
        .routes(routes!(generate))
        .routes(routes!(embed))
        .routes(routes!(embeddings))
        .routes(routes!(tags))
        .routes(routes!(ps))
        .routes(routes!(show))
        .routes(routes!(version));
    let router = router
        .route("/api", any(unknown_route))
        .nest("/api/", OpenApiRouter::new().fallback(unknown_route));
    OTHER_MODELS.into_iter().fold(router, |router, path| router.route(path, any(one_model)))
}

/// The next message of a conversation.
#[utoipa::path(
    post, path = "/api/chat", tag = "Ollama", request_body = ChatBody,
    responses(
        (status = 200, content(
            (ChatLine = "application/json"), (ChatLine = "application/x-ndjson"))),
        Refusals<Refusal>
    )
)]
async fn chat(context: RequestContext, body: Body) -> Result<Response, HttpError> {
    flow::generate(context, body, chat::read).await
}

/// The answer to a prompt.
#[utoipa::path(
    post, path = "/api/generate", tag = "Ollama", request_body = GenerateBody,
    responses(
        (status = 200, content(
            (GenerateLine = "application/json"), (GenerateLine = "application/x-ndjson"))),
        Refusals<Refusal>
    )
)]
async fn generate(context: RequestContext, body: Body) -> Result<Response, HttpError> {
    flow::generate(context, body, generate::read).await
}

/// Vectors of texts.
#[utoipa::path(
    post, path = "/api/embed", tag = "Ollama", request_body = EmbedBody,
    responses((status = 200, body = Embedded), Refusals<Refusal>)
)]
async fn embed(context: RequestContext, body: Body) -> Result<Json<Embedded>, HttpError> {
    let start = Instant::now();
    let vectors = vectors(&context, body, embed::read, embed::NORMALIZED).await?;
    Ok(Json(embed::answer(&context.app.service, vectors, start.elapsed())))
}

/// The vector of a text.
#[utoipa::path(
    post, path = "/api/embeddings", tag = "Ollama", request_body = EmbeddingsBody,
    responses((status = 200, body = Embedding), Refusals<Refusal>)
)]
async fn embeddings(context: RequestContext, body: Body) -> Result<Json<Embedding>, HttpError> {
    let vectors = vectors(&context, body, embed::read_one, embed::AS_THEY_ARE).await?;
    Ok(Json(embed::answer_one(vectors)))
}

async fn vectors(
    context: &RequestContext,
    body: Body,
    read: fn(&Service, &Value) -> Result<Vec<Prompt>, HttpError>,
    embed: Embed,
) -> Result<Vec<api::Embedding>, HttpError> {
    let prompts = prepare(&context.app, body, read).await?;
    compute(context, prompts, embed, RequestOptions::default()).await
}

/// The models there are.
#[utoipa::path(
    get, path = "/api/tags", tag = "Ollama", responses((status = 200, body = ModelTags), Refusals<Refusal>)
)]
async fn tags(State(app): State<App>) -> Json<ModelTags> {
    Json(models::tags(&app))
}

/// The models that are loaded.
#[utoipa::path(
    get, path = "/api/ps", tag = "Ollama", responses((status = 200, body = Running), Refusals<Refusal>)
)]
async fn ps(State(app): State<App>) -> Json<Running> {
    Json(models::running(&app.service))
}

/// Whose description is wanted.
#[derive(Debug, Deserialize, ToSchema)]
struct ShowBody {
    /// Any name: one model is served.
    #[serde(rename = "model")]
    _model: Option<String>,
    /// An older name of `model`.
    #[serde(rename = "name")]
    _name: Option<String>,
    /// Nothing more is shown.
    #[serde(rename = "verbose")]
    _verbose: Option<bool>,
}

/// What the model is.
#[utoipa::path(
    post, path = "/api/show", tag = "Ollama", request_body = ShowBody,
    responses((status = 200, body = Shown), Refusals<Refusal>)
)]
async fn show(State(app): State<App>, body: Body) -> Result<Json<Shown>, HttpError> {
    let _: ShowBody = prepare(&app, body, |_, body| crate::http::wire::read(body)).await?;
    Ok(Json(models::show(&app)))
}

/// The version of this program.
#[derive(Debug, Serialize, ToSchema)]
struct Version {
    version: &'static str,
}

/// The version of this program.
#[utoipa::path(
    get, path = "/api/version", tag = "Ollama",
    responses((status = 200, body = Version), Refusals<Refusal>)
)]
async fn version() -> Json<Version> {
    Json(Version { version: env!("CARGO_PKG_VERSION") })
}

async fn one_model(State(app): State<App>) -> HttpError {
    let message = format!(
        "this server serves one model, {}, which was chosen when it was started",
        app.service.info().name
    );
    HttpError::request(StatusCode::NOT_IMPLEMENTED, message)
}
