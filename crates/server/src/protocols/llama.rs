//! What clients of llama.cpp's server use besides OpenAI's API: tokens, the template, properties,
//! slots, completions and what is missing in the middle of a text.
//!
//! Source: the README of llama.cpp's server. Where it leaves a choice:
//!
//! - A slot is a place for an answer that is computed at a time. `cache_prompt` changes nothing,
//!   since every prompt finds what is cached of it. `id_slot` names the tokens of the answer, for
//!   actions on that slot, and has no other use.
//! - Sampling that a request leaves open is the model's own.
//! - Samplers that are not built are refused where they are asked for; hints about time and
//!   indentation are passed over.
//! - `n_predict: 0` computes the prompt, and one token that is not returned.

mod adapters;
mod answer;
mod completion;
mod embeddings;
mod models;
mod props;
mod protocol;
mod sampling;
mod slots;
mod tokens;

use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::protocol::Protocol;
use axum::routing::post;
pub(crate) use protocol::Llama;
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

impl Protocol for Llama {
    fn routes() -> OpenApiRouter<App> {
        OpenApiRouter::new()
            .routes(routes!(tokens::tokenize))
            .routes(routes!(tokens::detokenize))
            .routes(routes!(tokens::apply_template))
            .routes(routes!(completion::complete))
            .routes(routes!(completion::fill))
            .routes(routes!(embeddings::embed))
            .route("/completions", post(completion::complete))
            .route("/embeddings", post(embeddings::embed))
            .routes(routes!(props::properties))
            .routes(routes!(props::slots))
            .routes(routes!(adapters::list, adapters::set))
            .routes(routes!(slots::act))
            .routes(routes!(models::load))
            .routes(routes!(models::unload))
    }

    fn error_json(error: &HttpError) -> Value {
        let code = error.status.as_u16();
        let kind = match code {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            400 if error.lengths.is_some() => "exceed_context_size_error",
            400..=499 => "invalid_request_error",
            501 => "not_supported_error",
            503 => "unavailable_error",
            _ => "server_error",
        };
        let mut object = json!({ "code": code, "message": error.message, "type": kind });
        if let Some([prompt, context]) = error.lengths {
            (object["n_prompt_tokens"], object["n_ctx"]) = (json!(prompt), json!(context));
        }
        json!({ "error": object })
    }
}
