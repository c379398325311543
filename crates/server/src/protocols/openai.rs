//! OpenAI's API: chat completions, text completions, embeddings and models.
//!
//! Source: OpenAI API reference; fields that vLLM and llama.cpp add are taken in their spelling.
//! Where these leave a choice:
//!
//! - `model` may be any name: one model is served, and answers carry its own name, or that of the
//!   adapter that `model` names.
//! - Unknown members are ignored; known ones that cannot be honoured are refused.
//! - Reasoning is in `reasoning_content`, unless `reasoning_format` is `none`. Stop strings are
//!   sought in the content only. Log probabilities cover all tokens, reasoning included.
//! - With `n` choices and a seed, choice `i` is the answer to the seed plus `i`.

pub(crate) mod adapters;
mod answer;
pub(crate) mod chat;
mod chat_answer;
mod completion_answer;
mod completions;
pub(crate) mod count;
mod custom_tools;
mod embeddings;
mod messages;
mod models;
pub(crate) mod problem;
mod protocol;
pub(crate) mod sampling;
pub(crate) mod thinking;
mod tools;

use crate::http::app::App;
use crate::http::protocol::Protocol;
use axum::routing::get;
pub(crate) use protocol::OpenAi;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// What a document can only say in other words than the router: that names have slashes.
#[derive(OpenApi)]
#[openapi(paths(models::model))]
struct Rest;

impl Protocol for OpenAi {
    fn routes() -> OpenApiRouter<App> {
        OpenApiRouter::with_openapi(Rest::openapi())
            .routes(routes!(chat::chat_completions))
            .routes(routes!(count::chat_input_tokens))
            .routes(routes!(completions::text_completions))
            .routes(routes!(models::model_list))
            .route("/v1/models/{*id}", get(models::model))
            .routes(routes!(embeddings::embed))
            .routes(routes!(adapters::load))
            .routes(routes!(adapters::unload))
    }
}
