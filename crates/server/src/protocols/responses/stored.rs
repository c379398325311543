//! The routes of responses that are kept or under way.

use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::request::RequestContext;
use crate::protocols::openai::problem::Problem;
use crate::protocols::responses::listing::{ItemList, Page};
use crate::protocols::responses::log;
use crate::protocols::responses::object::Response as Made;
use crate::protocols::responses::store::{Owner, ResponseStore, StoreEntry};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The responses that are kept.
pub(crate) type StoreExtension = Extension<Arc<ResponseStore>>;

type Id = Result<Path<String>, PathRejection>;

/// All of them.
pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(retrieve, remove))
        .routes(routes!(cancel))
        .routes(routes!(input_items))
}

/// Whose responses a request may see: those of the key that it came with.
pub(crate) fn owner(context: &RequestContext) -> Owner {
    context.key.as_deref().map(Arc::from)
}

/// A response of this JSON text.
pub(crate) fn json(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// How a response is wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Retrieval {
    /// As events; of responses that were made in the background and streamed.
    stream: Option<bool>,
    /// From the event behind the one of this number.
    starting_after: Option<usize>,
}

/// A response that is kept or under way.
#[utoipa::path(get, path = "/v1/responses/{id}", tag = "OpenAI",
    params(("id" = String, Path), Retrieval),
    responses((status = 200, body = Made), (status = 400, body = Problem), (status = 401, body = Problem), (status = 404, body = Problem)))]
async fn retrieve(
    context: RequestContext,
    Extension(store): StoreExtension,
    id: Id,
    wanted: Result<Query<Retrieval>, QueryRejection>,
) -> Result<Response, HttpError> {
    let Query(wanted) = wanted.map_err(bad_query)?;
    let (_, entry) = find(&store, &context, id)?;
    if wanted.stream != Some(true) {
        return Ok(match entry {
            StoreEntry::Running(running) => json(running.json()),
            StoreEntry::Kept(kept) => json(kept.json.clone()),
        });
    }
    let log = match entry {
        StoreEntry::Running(running) => running.log.clone(),
        StoreEntry::Kept(kept) => kept.log.clone(),
    };
    let log = log.ok_or_else(|| {
        let message = "only a response made with background and stream can be streamed again";
        HttpError::invalid("stream", message)
    })?;
    let from = wanted.starting_after.map_or(0, |number| number.saturating_add(1));
    Ok(log::follow(log, from, context.app.options.keep_alive))
}

/// That a response is gone.
#[derive(Serialize, ToSchema)]
struct Removed {
    id: String,
    object: &'static str,
    deleted: bool,
}

/// Forgets a response; one that is under way ends.
#[utoipa::path(delete, path = "/v1/responses/{id}", tag = "OpenAI", params(("id" = String, Path)),
    responses((status = 200, body = Removed), (status = 401, body = Problem), (status = 404, body = Problem)))]
async fn remove(
    context: RequestContext,
    Extension(store): StoreExtension,
    id: Id,
) -> Result<Json<Removed>, HttpError> {
    let (id, entry) = find(&store, &context, id)?;
    store.remove(&owner(&context), &id);
    if let StoreEntry::Running(running) = entry {
        running.cancel().await;
    }
    Ok(Json(Removed { id, object: "response", deleted: true }))
}

/// Ends a response that is made in the background.
#[utoipa::path(post, path = "/v1/responses/{id}/cancel", tag = "OpenAI",
    params(("id" = String, Path)),
    responses((status = 200, body = Made), (status = 400, body = Problem), (status = 401, body = Problem), (status = 404, body = Problem)))]
async fn cancel(
    context: RequestContext,
    Extension(store): StoreExtension,
    id: Id,
) -> Result<Response, HttpError> {
    let (id, entry) = find(&store, &context, id)?;
    if let StoreEntry::Running(running) = entry {
        running.cancel().await;
    }
    // It may have been removed meanwhile.
    match store.get(&owner(&context), &id) {
        Some(StoreEntry::Kept(kept)) if kept.background => Ok(json(kept.json.clone())),
        Some(StoreEntry::Running(running)) => Ok(json(running.json())),
        Some(StoreEntry::Kept(_)) => {
            let message = "only a response made in the background can be cancelled";
            Err(HttpError::request(StatusCode::BAD_REQUEST, message))
        }
        None => Err(unknown(&id)),
    }
}

/// The items that a response answered, those of the conversation before it included.
#[utoipa::path(get, path = "/v1/responses/{id}/input_items", tag = "OpenAI",
    params(("id" = String, Path), Page),
    responses((status = 200, body = ItemList), (status = 400, body = Problem), (status = 401, body = Problem), (status = 404, body = Problem)))]
async fn input_items(
    context: RequestContext,
    Extension(store): StoreExtension,
    id: Id,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<ItemList>, HttpError> {
    let Query(page) = page.map_err(bad_query)?;
    let items = match find(&store, &context, id)?.1 {
        StoreEntry::Running(running) => running.asked.clone(),
        StoreEntry::Kept(kept) => kept.turn.asked(),
    };
    ItemList::of(items, &page).map(Json)
}

fn find(
    store: &ResponseStore,
    context: &RequestContext,
    id: Id,
) -> Result<(String, StoreEntry), HttpError> {
    let Path(id) = id.map_err(|rejection| HttpError::invalid("id", rejection.body_text()))?;
    match store.get(&owner(context), &id) {
        Some(entry) => Ok((id, entry)),
        None => Err(unknown(&id)),
    }
}

fn unknown(id: &str) -> HttpError {
    let message = format!("response with id '{id}' not found");
    HttpError::request(StatusCode::NOT_FOUND, message).with_code("response_not_found")
}

fn bad_query(rejection: QueryRejection) -> HttpError {
    HttpError::request(StatusCode::BAD_REQUEST, rejection.body_text())
}
