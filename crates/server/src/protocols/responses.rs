//! OpenAI's Responses API: answers as lists of items, streamed as typed events over HTTP or a
//! WebSocket, kept under their id for the next turn, and computed in the background if wanted.
//!
//! Source: OpenAI API reference, "Responses", and the specification of Open Responses. Where they
//! leave a choice:
//!
//! - Tools that the server would have to run itself, and items of their history, are left out and
//!   named in the member `warnings` of the answer.
//! - A custom tool is a function of one string to the model; a namespace's tools carry its name.
//! - Reasoning is the text of the model itself: as the item's content, and as a summary too where
//!   one is asked for. `encrypted_content` is that text too, encoded and not secret, so that a
//!   conversation that is kept by its client is rendered as it was.
//! - A compaction is a summary that the model writes, encoded and not secret.
//! - `truncation` is always `disabled`: nothing is dropped silently.
//! - Answers are kept per key, within bounds; the oldest unused one goes first. With a state folder
//!   they are kept in its file too, and a background response that a crash has cut off is computed
//!   again.

mod answer;
mod background;
mod call;
mod compact;
mod conversation_routes;
mod conversations;
mod held_bytes;
mod history;
mod input;
mod object;
mod open_item;
mod protocol;
mod records;
mod request;
mod routes;
pub(crate) mod running;
mod settings;
pub(crate) mod store;
mod summary;
mod tools;
mod tools_item;
mod turn;
mod websocket;

use crate::http::app::App;
use crate::http::error;
use crate::http::middleware::Exemptions;
use crate::http::protocol::Protocol;
use engine::Field;
pub(crate) use protocol::Responses;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

impl Protocol for Responses {
    const EXEMPTIONS: Exemptions =
        Exemptions { unlimited: &["/v1/responses/{id}/cancel"], ..Exemptions::NONE };

    fn routes() -> OpenApiRouter<App> {
        OpenApiRouter::new()
            .routes(routes!(routes::create, websocket::connect))
            .routes(routes!(compact::compact))
            .routes(routes!(routes::input_tokens))
            .routes(routes!(routes::retrieve, routes::remove))
            .routes(routes!(routes::cancel))
            .routes(routes!(routes::input_items))
            .routes(routes!(conversation_routes::create))
            .routes(routes!(
                conversation_routes::retrieve,
                conversation_routes::update,
                conversation_routes::remove
            ))
            .routes(routes!(conversation_routes::add_items, conversation_routes::items))
            .routes(routes!(conversation_routes::item, conversation_routes::remove_item))
    }

    fn field(field: &Field) -> &'static str {
        match field {
            Field::Parameter("max_tokens") => "max_output_tokens",
            Field::Parameter("reasoning_effort") => "reasoning.effort",
            other => error::field(other),
        }
    }
}
