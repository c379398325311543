//! The routes that make responses, and the routes of stored responses.

use crate::generate::answer::Answer;
use crate::generate::flow::{Delivery, NamedModel, counted, respond, when_ready};
use crate::generate::length;
use crate::http::error::HttpError;
use crate::http::models::ModelUse;
use crate::http::refusals::Refusals;
use crate::http::request::{ModelContext, RequestContext};
use crate::protocols::openai::count::InputTokens;
use crate::protocols::openai::problem::Problem;
use crate::protocols::responses::answer::ResponseAnswer;
use crate::protocols::responses::background::{Background, follow};
use crate::protocols::responses::call::{RequestReader, ResponseCall, Transport};
use crate::protocols::responses::history::Item;
use crate::protocols::responses::object::Response as Made;
use crate::protocols::responses::records::settled;
use crate::protocols::responses::request::CreateResponse;
use crate::protocols::responses::running::{begin, in_background};
use crate::protocols::responses::store::{ResponseStore, StoredResponse};
use crate::protocols::warnings::Warnings;
use api::{ApiError, Prepared};
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// The responses that are stored.
pub(crate) type StoreExtension = Extension<Arc<ResponseStore>>;

/// The id in a path.
pub(crate) type Id = Result<Path<String>, PathRejection>;

/// A response: whole, as events, or in the background.
#[utoipa::path(post, path = "/v1/responses", tag = "OpenAI", request_body = CreateResponse,
    responses((status = 200, body = Made), (status = 409, body = Problem), Refusals<Problem>))]
pub(crate) async fn create(
    context: RequestContext,
    Extension(store): StoreExtension,
    body: Body,
) -> Result<Response, HttpError> {
    let work = |context, named| created(context, store, named);
    when_ready::<ResponseAnswer, _>(context, body, work).await
}

async fn created(
    context: RequestContext,
    store: Arc<ResponseStore>,
    named: NamedModel,
) -> Result<Response, HttpError> {
    let read = read(context, &store, Transport::Http, named, |prepared| prepared);
    let (context, (call, prompt)) = read.await?;
    let stream = call.stream;
    let background = call.response.background;
    let work = || Background::new(stream, call.body.clone(), &store.held);
    let work = background.then(work).map(Arc::new);
    let (choices, mut answer) = begin(&context, store, call, prompt, work.clone())?;
    let app = context.request.app;
    let Some(work) = work else {
        return respond(&app, choices, answer, Delivery::of(stream)).await;
    };
    answer.store();
    answer.settled().await;
    // Made before the work begins, so that it shows the beginning.
    let first = match stream {
        true => follow(Arc::clone(&work), 0, app.options.ping_interval),
        false => Json(&answer.response).into_response(),
    };
    tokio::spawn(in_background(choices, answer, work, app.life));
    Ok(first)
}

/// Runs `work` with the body, and with a reader of requests with this `transport`.
pub(crate) async fn with_reader<T: Send + 'static>(
    context: RequestContext,
    store: &Arc<ResponseStore>,
    transport: Transport,
    named: NamedModel,
    work: impl FnOnce(&RequestReader<'_>, &Value) -> Result<T, HttpError> + Send + 'static,
) -> Result<(ModelContext, T), HttpError> {
    let (store, owner) = (Arc::clone(store), context.key.clone());
    let limit = context.app.options.body_limit;
    let work = move |model: &ModelUse, body: &Value| {
        let service = &model.service;
        let (owner, transport) = (&owner, &transport);
        work(&RequestReader { service, store: &store, owner, transport, limit }, body)
    };
    named.prepare(context, work).await
}

/// Reads a request and lets `check` look at what became of its prompt.
pub(crate) async fn read<T: Send + 'static>(
    context: RequestContext,
    store: &Arc<ResponseStore>,
    transport: Transport,
    named: NamedModel,
    check: impl FnOnce(Result<Prepared, ApiError>) -> Result<T, ApiError> + Send + 'static,
) -> Result<(ModelContext, (ResponseCall, T)), HttpError> {
    let counts = matches!(transport, Transport::Count);
    with_reader(context, store, transport, named, move |reader, body| {
        let counting = counts.then(|| reader.service.counting());
        let service = counting.as_ref().unwrap_or(reader.service);
        length::check(service, body)?;
        let mut call = reader.read(body)?;
        let prompt = service.for_options(&call.options).prepare_chat(&call.request);
        if let Ok(prompt) = &prompt {
            call.response.warnings.extend(prompt.warnings());
        }
        let prompt = check(prompt);
        Ok((call, prompt.map_err(|error| HttpError::of(error, "input"))?))
    })
    .await
}

/// How many tokens a request's prompt has.
#[utoipa::path(post, path = "/v1/responses/input_tokens", tag = "OpenAI",
    request_body = CreateResponse,
    responses((status = 200, body = InputTokens), Refusals<Problem>))]
pub(crate) async fn input_tokens(
    context: RequestContext,
    Extension(store): StoreExtension,
    body: Body,
) -> Result<Json<InputTokens>, HttpError> {
    let named = NamedModel::read(&context.app, body).await?;
    let (_, (_, input_tokens)) = read(context, &store, Transport::Count, named, counted).await?;
    Ok(Json(InputTokens::of(input_tokens)))
}

fn json(response: &StoredResponse) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], response.json.clone()).into_response()
}

/// The query of a request for a stored response.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Retrieval {
    /// As events; of responses that were made in the background and streamed.
    stream: Option<bool>,
    /// From the event behind the one of this number.
    starting_after: Option<usize>,
}

/// A response that is kept or under way.
#[utoipa::path(get, path = "/v1/responses/{id}", tag = "OpenAI",
    params(("id" = String, Path), Retrieval),
    responses((status = 200, body = Made), (status = 400, body = Problem), (status = 401, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn retrieve(
    context: RequestContext,
    Extension(store): StoreExtension,
    id: Id,
    wanted: Result<Query<Retrieval>, QueryRejection>,
) -> Result<Response, HttpError> {
    let Query(wanted) = wanted.map_err(bad_query)?;
    let (_, response) = find(&store, &context, id)?;
    if wanted.stream != Some(true) {
        return Ok(json(&response));
    }
    let work = response.background.clone().filter(|work| work.streams).ok_or_else(|| {
        let message = "only a response made with background and stream can be streamed again";
        HttpError::invalid("stream", message)
    })?;
    let from = wanted.starting_after.map_or(0, |number| number.saturating_add(1));
    Ok(follow(work, from, context.app.options.ping_interval))
}

/// That a response or a conversation is gone.
#[derive(Serialize, ToSchema)]
pub(crate) struct Removed {
    id: String,
    object: &'static str,
    deleted: bool,
}

impl Removed {
    /// That the `object` of this id is gone.
    pub fn new(id: String, object: &'static str) -> Self {
        Self { id, object, deleted: true }
    }
}

/// Forgets a response; one that is under way ends.
#[utoipa::path(delete, path = "/v1/responses/{id}", tag = "OpenAI", params(("id" = String, Path)),
    responses((status = 200, body = Removed), (status = 401, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn remove(
    context: RequestContext,
    Extension(store): StoreExtension,
    id: Id,
) -> Result<Json<Removed>, HttpError> {
    let (id, response) = find(&store, &context, id)?;
    let commit = store.remove(&context.key, &id);
    if let Some(work) = &response.background {
        work.cancel().await;
    }
    settled(commit).await;
    Ok(Json(Removed::new(id, "response")))
}

/// Ends a response that is made in the background.
#[utoipa::path(post, path = "/v1/responses/{id}/cancel", tag = "OpenAI",
    params(("id" = String, Path)),
    responses((status = 200, body = Made), (status = 400, body = Problem), (status = 401, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn cancel(
    context: RequestContext,
    Extension(store): StoreExtension,
    id: Id,
) -> Result<Response, HttpError> {
    let (id, response) = find(&store, &context, id)?;
    let Some(work) = &response.background else {
        let message = "only a response made in the background can be cancelled";
        return Err(HttpError::request(StatusCode::BAD_REQUEST, message));
    };
    work.cancel().await;
    // It may have been removed meanwhile.
    store.get(&context.key, &id).map(|ended| json(&ended)).ok_or_else(|| unknown(&id))
}

/// Items of a page, unless it says how many.
const PAGE_ITEMS: usize = 20;
const MAX_PAGE_ITEMS: usize = 100;

/// The query of a request for items.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Page {
    /// Those behind the item of this id.
    after: Option<String>,
    /// So many; 1 to 100, 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
    /// The newest first, unless it is `asc`.
    #[param(inline)]
    order: Option<Order>,
}

/// The order of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    Asc,
    #[default]
    Desc,
}

/// A page of items.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ItemList {
    object: &'static str,
    #[schema(value_type = Vec<Object>)]
    data: Vec<Value>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
    /// Items that were left out; an extension.
    #[serde(skip_serializing_if = "Warnings::is_empty")]
    warnings: Warnings,
}

impl ItemList {
    /// The wanted page of `items`, the oldest of which comes first.
    ///
    /// # Errors
    /// If the limit is out of range, or the item to begin after is unknown.
    pub fn of(mut items: Vec<Arc<Item>>, page: &Page) -> Result<Self, HttpError> {
        let limit = page.limit.unwrap_or(PAGE_ITEMS);
        if !(1..=MAX_PAGE_ITEMS).contains(&limit) {
            let message = format!("limit must be 1 to {MAX_PAGE_ITEMS}, not {limit}");
            return Err(HttpError::invalid("limit", message));
        }
        if page.order.unwrap_or_default() == Order::Desc {
            items.reverse();
        }
        let start = match &page.after {
            None => 0,
            Some(id) => {
                let place = items.iter().position(|item| item.id() == id);
                place.ok_or_else(|| HttpError::at("after", format!("there is no item {id}")))? + 1
            }
        };
        let rest = &items[start..];
        let shown = &rest[..rest.len().min(limit)];
        let has_more = rest.len() > limit;
        Ok(Self { has_more, ..Self::whole(shown, Warnings::default()) })
    }

    /// All of `items`.
    pub fn whole(items: &[Arc<Item>], warnings: Warnings) -> Self {
        let id = |item: &Arc<Item>| item.id().to_owned();
        Self {
            object: "list",
            data: items.iter().map(|item| item.json()).collect(),
            first_id: items.first().map(id),
            last_id: items.last().map(id),
            has_more: false,
            warnings,
        }
    }
}

/// The items that a response answered, those of the conversation before it included.
#[utoipa::path(get, path = "/v1/responses/{id}/input_items", tag = "OpenAI",
    params(("id" = String, Path), Page),
    responses((status = 200, body = ItemList), (status = 400, body = Problem), (status = 401, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn input_items(
    context: RequestContext,
    Extension(store): StoreExtension,
    id: Id,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<ItemList>, HttpError> {
    let Query(page) = page.map_err(bad_query)?;
    let (_, response) = find(&store, &context, id)?;
    ItemList::of(response.turn.asked(), &page).map(Json)
}

fn find(
    store: &ResponseStore,
    context: &RequestContext,
    id: Id,
) -> Result<(String, Arc<StoredResponse>), HttpError> {
    let Path(id) = id.map_err(bad_path)?;
    let response = store.get(&context.key, &id).ok_or_else(|| unknown(&id))?;
    Ok((id, response))
}

fn unknown(id: &str) -> HttpError {
    let message = format!("response with id '{id}' not found");
    HttpError::request(StatusCode::NOT_FOUND, message).with_code("response_not_found")
}

/// 400: an id in the path cannot be read.
pub(crate) fn bad_path(rejection: PathRejection) -> HttpError {
    HttpError::invalid("id", rejection.body_text())
}

/// 400: the query cannot be read.
pub(crate) fn bad_query(rejection: QueryRejection) -> HttpError {
    HttpError::request(StatusCode::BAD_REQUEST, rejection.body_text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Role;

    fn page(after: Option<&str>, limit: Option<usize>, order: Option<Order>) -> Option<String> {
        let item = |number: usize| {
            let texts = vec!["x".into()];
            Arc::new(Item::Message { id: number.to_string(), role: Role::User, texts })
        };
        let page = Page { after: after.map(str::to_owned), limit, order };
        let list = ItemList::of((0..5).map(item).collect(), &page).ok()?;
        let ids: String = list.data.iter().filter_map(|item| item["id"].as_str()).collect();
        Some(if list.has_more { ids + "+" } else { ids })
    }

    fn check(found: Option<String>, expected: &str) {
        assert_eq!(found.as_deref(), Some(expected));
    }

    #[test]
    fn pages_follow_each_other_in_either_order() {
        check(page(None, None, None), "43210");
        check(page(None, Some(2), None), "43+");
        check(page(Some("3"), Some(2), None), "21+");
        check(page(Some("1"), Some(2), Some(Order::Asc)), "23+");
        check(page(Some("2"), Some(2), Some(Order::Asc)), "34");
        check(page(Some("4"), None, Some(Order::Asc)), "");
    }

    #[test]
    fn pages_that_cannot_be_are_refused() {
        assert_eq!(page(None, Some(0), None), None);
        assert_eq!(page(None, Some(101), None), None);
        assert_eq!(page(Some("9"), None, None), None);
    }
}
