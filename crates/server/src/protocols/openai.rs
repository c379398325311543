//! OpenAI's API: chat completions, text completions, embeddings and models.
//!
//! Source: OpenAI API reference; fields that vLLM and llama.cpp add are taken in their spelling.
//! Where these leave a choice:
//!
//! - `model` may be any name: one model is served, and answers carry its own name.
//! - Unknown members are ignored; known ones that cannot be honoured are refused.
//! - Reasoning is in `reasoning_content`, unless `reasoning_format` is `none`. Stop strings are
//!   sought in the content only. Log probabilities cover all tokens, reasoning included.
//! - With `n` choices and a seed, choice `i` is the answer to the seed plus `i`.

mod answer;
pub(crate) mod chat;
mod chat_answer;
mod completion_answer;
mod completions;
mod embeddings;
mod messages;
mod models;
pub(crate) mod problem;
pub(crate) mod sampling;
mod thinking;
mod tools;

use crate::http::app::App;
use crate::http::protocol::Protocol;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// OpenAI's API without the Responses API.
pub(crate) struct OpenAi;

impl Protocol for OpenAi {
    fn routes() -> OpenApiRouter<App> {
        OpenApiRouter::new()
            .routes(routes!(chat::chat_completions))
            .routes(routes!(completions::text_completions))
            .merge(models::routes())
            .merge(embeddings::routes())
    }
}
