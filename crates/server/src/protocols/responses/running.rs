//! Responses that are being computed: for their client, in the background, or again because the end
//! of a server has cut them off.
//!
//! A response that is kept in a file is recorded with its request and its seed when it is asked
//! for. When a server starts, it computes unfinished ones again, under their ids: the
//! text, the items and the numbers of the events are the same.

use crate::generate::answer::Answer;
use crate::generate::choices::Choices;
use crate::generate::flow::NamedModel;
use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::models::ModelUse;
use crate::http::request::{ModelContext, RequestContext, RequestId};
use crate::http::shutdown::{Life, Phase};
use crate::http::sse::Frame;
use crate::protocols::responses::answer::{ResponseAnswer, StoreSlot};
use crate::protocols::responses::background::Background;
use crate::protocols::responses::call::{RequestReader, ResponseCall, Transport};
use crate::protocols::responses::conversations::Lease;
use crate::protocols::responses::object::Status;
use crate::protocols::responses::records::Named;
use crate::protocols::responses::store::{ResponseStore, StoredResponse};
use api::Prepared;
use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time between attempts to begin a response while the queue is full.
const PAUSE: Duration = Duration::from_secs(1);

/// Begins to compute the response that `call` asks for, if needed in the `background`.
pub(crate) fn begin(
    context: &ModelContext,
    store: Arc<ResponseStore>,
    call: ResponseCall,
    prompt: Prepared,
    background: Option<Arc<Background>>,
) -> Result<(Choices, ResponseAnswer), HttpError> {
    let (options, id) = (call.options.clone(), call.response.id.clone());
    let choices = Choices::start(context, &[prompt], 1, options, id)?;
    Ok((choices, answer(&context.request, store, call, background)))
}

/// The answer to `call` before it is computed.
fn answer(
    context: &RequestContext,
    store: Arc<ResponseStore>,
    call: ResponseCall,
    background: Option<Arc<Background>>,
) -> ResponseAnswer {
    let ResponseCall { space, response, view, tools, context: continued, .. } = call;
    let owner = context.key.clone();
    let slot = StoreSlot { store, owner, space, continued, background };
    ResponseAnswer::new(response, view, tools, Some(slot))
}

/// Makes a response without its client; `answer` stores it.
pub(crate) async fn in_background(
    choices: Choices,
    mut answer: ResponseAnswer,
    work: Arc<Background>,
    life: Life,
) {
    work.push(&answer.open());
    answer.store();
    match made(choices, &mut answer, &work, &life).await {
        Some(last) => {
            answer.store_events(&last);
            answer.settled().await;
            work.push(&last);
        }
        None => {
            // It was no crash.
            work.crashes.store(0, Ordering::Relaxed);
            answer.store();
        }
    }
    work.end();
}

/// Adds all events but the last ones, which it returns; none if the server ends before the
/// response, which the next one resumes.
async fn made(
    mut choices: Choices,
    answer: &mut ResponseAnswer,
    work: &Background,
    life: &Life,
) -> Option<Vec<Frame>> {
    loop {
        let event = tokio::select! {
            biased;
            () = work.cancelled.notified() => {
                drop(choices);
                return Some(answer.cancel());
            }
            event = choices.next() => event,
        };
        match event {
            Some(Ok((index, event))) => work.push(&answer.frames(index, event)),
            Some(Err(_)) if work.body.is_some() && life.phase() == Phase::Closing => return None,
            Some(Err(error)) => return Some(answer.broken(&error)),
            None => return Some(answer.close(&choices.log.usage)),
        }
    }
}

/// Begins to compute the responses of `store` that have not ended. Nothing else may be running.
pub(crate) fn resume(app: &App, store: &Arc<ResponseStore>) {
    for (name, response) in store.interrupted() {
        // Now, ahead of other requests that continue the conversation.
        let lease = conversation_of(&response.json);
        let lease = lease.and_then(|id| store.conversations.lease(&name.0, &id).ok());
        tokio::spawn(again(app.clone(), Arc::clone(store), name, response, lease));
    }
}

/// The id of the conversation that a response object names.
fn conversation_of(response: &str) -> Option<String> {
    let response: Value = serde_json::from_str(response).ok()?;
    response["conversation"]["id"].as_str().map(str::to_owned)
}

async fn again(
    app: App,
    store: Arc<ResponseStore>,
    name: Named,
    response: Arc<StoredResponse>,
    lease: Option<Lease>,
) {
    let Some(work) = response.background.clone() else { return };
    let id = RequestId::of(&HeaderMap::new());
    let context = RequestContext::new(&app, id, name.0.clone());
    tracing::info!(request_id = &*context.id.name, id = name.1, "resumed");
    match begun(&context, &store, &name, &response, lease).await {
        Ok((choices, answer)) => in_background(choices, answer, work, app.life).await,
        Err(error) => {
            store.fail(&name, &error.message);
            work.end();
        }
    }
}

/// Begins with a response as [`begin`] does, as soon as it may be queued.
async fn begun(
    context: &RequestContext,
    store: &Arc<ResponseStore>,
    name: &Named,
    response: &Arc<StoredResponse>,
    lease: Option<Lease>,
) -> Result<(Choices, ResponseAnswer), HttpError> {
    let before: Value = serde_json::from_str(&response.json).unwrap_or_default();
    let (context, (mut call, prompt)) = reread(context, store, response).await?;
    if before["model"] != *call.response.model {
        let message = "the server has another model than before it ended";
        return Err(HttpError::server(StatusCode::INTERNAL_SERVER_ERROR, message));
    }
    call.context.lease = lease;
    call.response.id.clone_from(&name.1);
    call.response.created_at = response.created;
    call.response.status = Status::Queued;
    let choices = loop {
        let (options, id) = (call.options.clone(), name.1.clone());
        match Choices::start(&context, slice::from_ref(&prompt), 1, options, id) {
            Err(error) if error.status == StatusCode::TOO_MANY_REQUESTS => {
                tokio::time::sleep(PAUSE).await;
            }
            other => break other?,
        }
    };
    let work = response.background.clone();
    Ok((choices, answer(&context.request, Arc::clone(store), call, work)))
}

/// Reads the request of `response` again.
async fn reread(
    context: &RequestContext,
    store: &Arc<ResponseStore>,
    response: &Arc<StoredResponse>,
) -> Result<(ModelContext, (ResponseCall, Prepared)), HttpError> {
    let (limit, store, owner) =
        (context.app.options.body_limit, Arc::clone(store), context.key.clone());
    let body = response.background.as_ref().and_then(|work| work.body.as_deref());
    let body = serde_json::from_str(body.unwrap_or_default()).map_err(|_| HttpError::internal())?;
    let response = Arc::clone(response);
    let read = move |model: &ModelUse, body: &Value| {
        let service = &model.service;
        let (transport, store, owner) = (&Transport::Http, &store, &owner);
        let reader = RequestReader { service, store, owner, transport, limit };
        let mut call = reader.read_again(body, &response.turn)?;
        let prompt = service.for_options(&call.options).prepare_chat(&call.request);
        let prompt = prompt.map_err(|error| HttpError::of(error, "input"))?;
        call.response.warnings.extend(prompt.warnings());
        Ok((call, prompt))
    };
    NamedModel::of(&context.app.models, body)?.prepare(context.clone(), read).await
}
