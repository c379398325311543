//! Anthropic's Messages API: messages, and the count of their tokens.
//!
//! Source: Anthropic API reference and the types of its official clients. Where these leave a
//! choice, or ask for what one local model has not:
//!
//! - `model` may be any name, or none: one model is served, and answers carry its own name.
//!   `anthropic-version` and `anthropic-beta` are taken whatever they say. With the former, the
//!   routes of models answer in this protocol's form.
//! - `max_tokens` beyond what the context has left means all that it has left.
//! - Tools that run on Anthropic's servers (those with a `type` and no `input_schema`) are left
//!   out, and so is what they once did, where it stands in the history; the member `warnings` of
//!   the answer names them. Documents of text are text. Images and other documents are refused in
//!   messages, and notes in results of tools.
//! - A message that ends the conversation in the role `assistant` is how the answer begins. Such an
//!   answer does not think.
//! - Lines of the system prompt that are headers of a client's billing are dropped: they change
//!   with every request, and no prompt would begin as the one before it.
//! - Of the prompt's tokens, `cache_read_input_tokens` were found in the cache. The rest are
//!   `cache_creation_input_tokens` if the request holds any `cache_control`, else `input_tokens`;
//!   the three add up to the prompt. What is cached does not depend on `cache_control`.
//! - The signature of a thinking block is a digest of its text, which is not asked for again; with
//!   `display: omitted` it is the text itself, encoded and not secret.
//! - A stream that breaks off ends in an `error` event and nothing else, as the official one does.
//! - A tool call that breaks ends its block; its text follows in a text block, and the answer does
//!   not end in `tool_use`.

pub(crate) mod answer;
mod blocks;
mod chat;
mod edits;
mod messages;
pub(crate) mod models;
mod protocol;
mod request;
mod response;
pub(crate) mod routes;
mod system;
mod tools;

use crate::http::app::App;
use crate::http::error::{self, HttpError};
use crate::http::fallback::unknown_route;
use crate::http::protocol::Protocol;
use axum::http::HeaderName;
use engine::Field;
pub(crate) use protocol::Anthropic;
use response::ErrorBody;
use serde_json::{Value, json};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The schema of errors, to which refusals refer.
#[derive(OpenApi)]
#[openapi(components(schemas(ErrorBody)))]
struct Errors;

impl Protocol for Anthropic {
    const ID_HEADER: Option<HeaderName> = Some(HeaderName::from_static("request-id"));

    fn routes() -> OpenApiRouter<App> {
        OpenApiRouter::with_openapi(Errors::openapi())
            .routes(routes!(routes::messages))
            .routes(routes!(routes::count_tokens))
            .nest("/v1/messages/", OpenApiRouter::new().fallback(unknown_route))
    }

    fn error_json(error: &HttpError) -> Value {
        json!(ErrorBody::of(error))
    }

    fn field(field: &Field) -> &'static str {
        match field {
            Field::Parameter("stop") => "stop_sequences",
            other => error::field(other),
        }
    }
}
