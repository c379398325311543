//! Ollama's API: chat, generation and what its clients ask about models.
//!
//! Source: Ollama's API document and the types of its clients. Where these leave a choice:
//!
//! - Where one model is served, `model` may be any name. Among many, the tag `latest` may be left
//!   out or added.
//! - Nothing is ever cut off a prompt. `num_ctx`, `num_keep`, `truncate` and `shift` are read and
//!   change nothing; a prompt that does not fit is refused with both sizes. The ends of texts to
//!   embed are left out where they are too long, unless `truncate` is false.
//! - Sampling that a request leaves open is the model's own, not Ollama's.
//! - The only model of a server stays loaded, as do pinned ones: `keep_alive` is checked and
//!   changes nothing, and requests to load or unload are answered as if they had been followed.
//! - `context` continues where an answer ended, its closing token included.

mod answer;
mod embed;
mod generation;
mod keep_alive;
mod line;
mod messages;
mod models;
mod options;
mod protocol;
mod refusal;

use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::fallback::unknown_route;
use crate::http::protocol::Protocol;
use axum::extract::State;
use axum::routing::any;
pub(crate) use protocol::Ollama;
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Paths of what this server cannot do.
pub(crate) const FILES_OF_MODELS: [&str; 6] =
    ["/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete", "/api/blobs/{digest}"];

impl Protocol for Ollama {
    fn routes() -> OpenApiRouter<App> {
        let router = OpenApiRouter::new()
            .routes(routes!(generation::chat))
            .routes(routes!(generation::generate))
            .routes(routes!(embed::embed))
            .routes(routes!(embed::embeddings))
            .routes(routes!(models::tags))
            .routes(routes!(models::ps))
            .routes(routes!(models::show))
            .routes(routes!(models::version))
            .route("/api", any(unknown_route))
            .nest("/api/", OpenApiRouter::new().fallback(unknown_route));
        FILES_OF_MODELS.into_iter().fold(router, |router, path| router.route(path, any(no_changes)))
    }

    fn error_json(error: &HttpError) -> Value {
        json!({ "error": error.message })
    }
}

async fn no_changes(State(app): State<App>) -> HttpError {
    HttpError::not_supported(match app.models.only() {
        Some(only) => format!(
            "this server serves one model, {}, which was chosen when it was started",
            only.name
        ),
        None => "the models of this server were chosen when it was started".to_owned(),
    })
}
