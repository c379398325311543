//! `POST /v1/responses/compact`: a conversation made shorter.
//!
//! Source: OpenAI API reference, "Compact a response". What remains of a conversation are the
//! messages of the system and of the user, followed by one item that stands for all else: a
//! summary that the model wrote. The summary is encoded and not secret.

use crate::generate::answer::Collected;
use crate::generate::choices::Choices;
use crate::generate::flow::NamedModel;
use crate::generate::options::OptionsBody;
use crate::http::app::unix_now;
use crate::http::described::described;
use crate::http::error::HttpError;
use crate::http::random;
use crate::http::refusals::Refusals;
use crate::http::request::RequestContext;
use crate::http::wire;
use crate::protocols::openai::problem::Problem;
use crate::protocols::responses::call::{Continuation, RequestReader, Transport, refuse};
use crate::protocols::responses::history::{Item, outlives_summary};
use crate::protocols::responses::object::Tokens;
use crate::protocols::responses::request::{CreateResponse, ResponseInput};
use crate::protocols::responses::routes::{StoreExtension, with_reader};
use crate::protocols::responses::summary::{request_summary, summary};
use crate::protocols::warnings::Warnings;
use api::{ChatRequest, Prepared, RequestOptions};
use axum::body::Body;
use axum::{Extension, Json};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use utoipa::ToSchema;

described! {
    /// The conversation that shall be shorter.
    pub(crate) name CompactResponse = {
        /// The name of a model; any name where one is served.
        model: (String),
        /// A text, or an array of items.
        input: (?ResponseInput),
        /// The stored response that the conversation ends with.
        previous_response_id: (Option<String>),
        /// The first system message, for the summary alone.
        instructions: (Option<String>),
        prompt_cache_key: (Option<String>),
        /// The user of the request: the users of a key share its part of the machine evenly.
        user: (Option<String>),
    };
}

/// A shorter conversation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CompactedResponse {
    id: String,
    object: &'static str,
    created_at: u64,
    /// The items to begin the next request's `input` with.
    #[schema(value_type = Vec<Object>)]
    output: Vec<Value>,
    usage: Tokens,
    /// What was left out; an extension.
    #[serde(skip_serializing_if = "Warnings::is_empty")]
    warnings: Warnings,
}

/// A conversation of which a summary is to be written.
struct Compaction {
    prompt: Prepared,
    options: RequestOptions,
    kept: Vec<Arc<Item>>,
    warnings: Warnings,
}

/// A conversation, made shorter: its result is the beginning of the next request's input.
#[utoipa::path(post, path = "/v1/responses/compact", tag = "OpenAI",
    request_body = CompactResponse,
    responses((status = 200, body = CompactedResponse), Refusals<Problem>))]
pub(crate) async fn compact(
    context: RequestContext,
    Extension(store): StoreExtension,
    body: Body,
) -> Result<Json<CompactedResponse>, HttpError> {
    let named = NamedModel::read(&context.app, body).await?;
    let (context, compaction) = with_reader(context, &store, Transport::Http, named, read).await?;
    let Compaction { prompt, options, kept, warnings } = compaction;
    let id = random::id("resp_");
    let mut choices = Choices::start(&context, &[prompt], 1, options, id.clone())?;
    let mut written = Collected::default();
    while let Some(event) = choices.next().await {
        written.add(event?.1);
    }
    let summary = Item::Compaction { id: random::id("cmp_"), summary: summary(written)? };
    let output = kept.iter().map(|item| item.json()).chain([summary.json()]).collect();
    Ok(Json(CompactedResponse {
        id,
        object: "response.compaction",
        created_at: unix_now(),
        output,
        usage: Tokens::from(&choices.log.usage),
        warnings,
    }))
}

/// Reads a request and prepares the prompt for the summary.
fn read(reader: &RequestReader<'_>, body: &Value) -> Result<Compaction, HttpError> {
    let asked: CreateResponse = wire::read(body)?;
    refuse(&asked)?;
    if asked.conversation.is_some() {
        let problem = "is not supported here; use previous_response_id";
        return Err(HttpError::member("conversation", problem));
    }
    if body.get("model").is_none() {
        return Err(wire::missing("model"));
    }
    let mut warnings = Warnings::default();
    let options = wire::read::<OptionsBody>(body)?.without_progress()?;
    let space = reader.space(&options);
    let Continuation { parent, input, .. } = reader.conversation(&asked, space, &mut warnings)?;
    let items = reader.items(parent.as_deref(), &input)?;
    let messages = reader.messages(asked.instructions.as_deref(), &items)?;
    let mut request = ChatRequest { messages, ..ChatRequest::default() };
    request_summary(&mut request, reader.service);
    let prompt = reader.service.for_options(&options).prepare_chat(&request);
    let prompt = prompt.map_err(|error| HttpError::of(error, "input"))?;
    let kept = items.into_iter().filter(|item| outlives_summary(item)).collect();
    Ok(Compaction { prompt, options, kept, warnings })
}
