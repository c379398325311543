//! Ollama's API: chat, generation and what its clients ask about models.
//!
//! Source: Ollama's API document and the types of its clients. Where these leave a choice:
//!
//! - `model` may be any name, with or without a tag: one model is served, under its own name.
//! - Nothing is ever cut off a prompt. `num_ctx`, `num_keep`, `truncate` and `shift` are read and
//!   change nothing; a prompt that does not fit is refused with both sizes.
//! - Sampling that a request leaves open is the model's own, not Ollama's.
//! - The model stays loaded: `keep_alive` is checked and changes nothing, and requests to load or
//!   unload are answered as if they had been followed.
//! - `context` goes on where an answer ended, its closing token included.

mod answer;
mod chat;
mod duration;
mod embed;
mod format;
mod generate;
mod line;
mod messages;
mod models;
mod options;
mod refusal;
pub(crate) mod routes;
mod think;

use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::protocol::Protocol;
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;

/// Ollama's API.
pub(crate) struct Ollama;

impl Protocol for Ollama {
    fn routes() -> OpenApiRouter<App> {
        routes::routes()
    }

    fn error_json(error: &HttpError) -> Value {
        json!({ "error": error.message() })
    }
}
