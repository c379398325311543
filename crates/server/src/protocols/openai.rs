//! OpenAI's API: chat completions, text completions, embeddings and models.
//!
//! Source: OpenAI API reference; fields that vLLM and llama.cpp add are taken in their spelling.
//! Where these leave a choice:
//!
//! - `model` may be any name: one model is served, and answers carry its own name.
//! - Unknown members are ignored; known ones that cannot be honoured are refused.
//! - Reasoning comes as `reasoning_content`, unless `reasoning_format` is `none`. Stop strings are
//!   sought in the content only. Log probabilities cover all tokens, reasoning included.
//! - With `n` choices and a seed, choice `i` is the answer to the seed plus `i`.

pub(crate) mod answer;
pub(crate) mod chat;
pub(crate) mod chat_answer;
pub(crate) mod chat_body;
pub(crate) mod chat_object;
pub(crate) mod completion_answer;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod problem;
pub(crate) mod routes;
pub(crate) mod thinking;
pub(crate) mod tools;

use crate::http::app::App;
use crate::http::protocol::Protocol;
use utoipa_axum::router::OpenApiRouter;

/// OpenAI's API but for responses.
pub(crate) struct OpenAi;

impl Protocol for OpenAi {
    fn routes() -> OpenApiRouter<App> {
        routes::routes()
    }
}
