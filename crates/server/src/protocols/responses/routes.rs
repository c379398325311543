//! The routes that make responses.

use crate::generate::choices::Choices;
use crate::generate::flow::{Delivery, counted, prepare, respond};
use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::refusals::Refusals;
use crate::http::request::RequestContext;
use crate::protocols::openai::problem::Problem;
use crate::protocols::responses::answer::{ResponseAnswer, StoreSlot};
use crate::protocols::responses::background;
use crate::protocols::responses::call::{RequestReader, ResponseCall};
use crate::protocols::responses::log::{self, Log};
use crate::protocols::responses::object::Response as Made;
use crate::protocols::responses::request::CreateResponse;
use crate::protocols::responses::running::Running;
use crate::protocols::responses::store::{Owner, ResponseStore, StoreEntry};
use crate::protocols::responses::stored::{self, StoreExtension};
use api::{ApiError, Prepared};
use axum::Json;
use axum::body::Body;
use axum::extract::Extension;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// All routes of responses.
pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(input_tokens))
        .merge(stored::routes())
}

/// A response: whole, as events, or in the background.
#[utoipa::path(post, path = "/v1/responses", tag = "OpenAI", request_body = CreateResponse,
    responses((status = 200, body = Made), Refusals<Problem>))]
async fn create(
    context: RequestContext,
    Extension(store): StoreExtension,
    body: Body,
) -> Result<Response, HttpError> {
    let (mut call, prompt) = read(&context, &store, body, |prepared| prepared).await?;
    let (options, id) = (std::mem::take(&mut call.options), call.response.id.clone());
    let choices = Choices::start(&context, &[prompt], 1, options, id)?;
    let (owner, stream) = (stored::owner(&context), call.stream);
    if call.response.background {
        let (answer, running) = in_background(&store, &owner, call);
        // Before it begins, so that the word is of its beginning.
        let word = first_word(&context.app, &running);
        tokio::spawn(background::run(choices, answer, running));
        return Ok(word);
    }
    respond(&context.app, choices, answer(store, owner, call, None), Delivery::of(stream)).await
}

/// Reads a request and lets `check` look at what became of its prompt.
async fn read<T: Send + 'static>(
    context: &RequestContext,
    store: &Arc<ResponseStore>,
    body: Body,
    check: impl FnOnce(Result<Prepared, ApiError>) -> Result<T, ApiError> + Send + 'static,
) -> Result<(ResponseCall, T), HttpError> {
    let (store, owner) = (Arc::clone(store), stored::owner(context));
    let limit = context.app.options.body_limit;
    prepare(&context.app, body, move |service, body| {
        let reader = RequestReader { service, store: &store, owner: &owner, limit };
        let call = reader.read(body)?;
        let prompt = check(service.prepare_chat(&call.request));
        Ok((call, prompt.map_err(|error| HttpError::of(error, "input"))?))
    })
    .await
}

fn answer(
    store: Arc<ResponseStore>,
    owner: Owner,
    call: ResponseCall,
    log: Option<Arc<Log>>,
) -> ResponseAnswer {
    let ResponseCall { response, view, tools, input, parent, .. } = call;
    let deposit = response.store.then(|| StoreSlot { store, owner, parent, input, log });
    ResponseAnswer::new(response, view, tools, deposit)
}

/// Keeps a response that is yet to be made.
fn in_background(
    store: &Arc<ResponseStore>,
    owner: &Owner,
    call: ResponseCall,
) -> (ResponseAnswer, Arc<Running>) {
    let log = call.stream.then(|| Arc::new(Log::new(store.held())));
    let mut asked = call.parent.as_ref().map(|parent| parent.items()).unwrap_or_default();
    asked.extend_from_slice(&call.input);
    let running = Arc::new(Running::new(&call.response, asked, log.clone()));
    store.put(owner, &call.response.id, StoreEntry::Running(Arc::clone(&running)));
    (answer(Arc::clone(store), owner.clone(), call, log), running)
}

/// What the client of a background response gets at once.
fn first_word(app: &App, running: &Running) -> Response {
    match &running.log {
        Some(log) => log::follow(Arc::clone(log), 0, app.options.keep_alive),
        None => stored::json(running.json()),
    }
}

/// The tokens of a prompt.
#[derive(Serialize, ToSchema)]
struct InputTokens {
    object: &'static str,
    input_tokens: usize,
}

/// How many tokens a request's prompt has.
#[utoipa::path(post, path = "/v1/responses/input_tokens", tag = "OpenAI",
    request_body = CreateResponse,
    responses((status = 200, body = InputTokens), Refusals<Problem>))]
async fn input_tokens(
    context: RequestContext,
    Extension(store): StoreExtension,
    body: Body,
) -> Result<Response, HttpError> {
    let (_, input_tokens) = read(&context, &store, body, counted).await?;
    Ok(Json(InputTokens { object: "response.input_tokens", input_tokens }).into_response())
}
