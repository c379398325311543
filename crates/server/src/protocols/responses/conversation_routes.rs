//! `/v1/conversations`: conversations and their items.
//!
//! Source: OpenAI API reference, "Conversations". Conversations belong to the key that they were
//! made with, and stay until they are removed or make space for others.

use crate::generate::flow;
use crate::http::error::HttpError;
use crate::http::fields::wrong;
use crate::http::refusals::Refusals;
use crate::http::request::RequestContext;
use crate::http::wire::{self, Object};
use crate::protocols::openai::problem::Problem;
use crate::protocols::responses::conversations::{StoredConversation, lease, unknown};
use crate::protocols::responses::history::Item;
use crate::protocols::responses::input;
use crate::protocols::responses::records::{Owner, settled};
use crate::protocols::responses::routes::{
    Id, ItemList, Page, Removed, StoreExtension, bad_path, bad_query,
};
use crate::protocols::responses::store::ResponseStore;
use crate::protocols::responses::turn::{StoredTurn, conversation};
use crate::protocols::warnings::Warnings;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use utoipa::ToSchema;

/// Most items that are added at a time.
const MAX_ITEMS: usize = 20;
/// Most pairs of metadata, and most characters of a name and of a value.
const MAX_PAIRS: usize = 16;
const MAX_NAME: usize = 64;
const MAX_VALUE: usize = 512;

type ItemId = Result<Path<(String, String)>, PathRejection>;

/// What a conversation begins with.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CreateConversation {
    /// Its first items, at most 20.
    #[schema(value_type = Option<Vec<Object>>)]
    items: Option<Value>,
    /// At most 16 names with texts.
    metadata: Option<Object>,
}

/// Other metadata of a conversation.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct UpdateConversation {
    /// At most 16 names with texts.
    #[schema(value_type = Object)]
    metadata: Option<Map<String, Value>>,
}

/// Items that a conversation gets.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct AddItems {
    /// At most 20.
    #[schema(value_type = Vec<Object>)]
    items: Option<Value>,
}

/// A conversation without its items.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Conversation)]
pub(crate) struct ConversationObject {
    id: String,
    object: &'static str,
    created_at: u64,
    metadata: Object,
    /// Items that were left out; an extension.
    #[serde(skip_serializing_if = "Warnings::is_empty")]
    warnings: Warnings,
}

impl ConversationObject {
    fn new(id: String, conversation: StoredConversation, warnings: Warnings) -> Json<Self> {
        let StoredConversation { created: created_at, metadata, .. } = conversation;
        Json(Self { id, object: "conversation", created_at, metadata, warnings })
    }
}

/// A conversation, which responses can continue.
#[utoipa::path(post, path = "/v1/conversations", tag = "OpenAI",
    request_body = CreateConversation,
    responses((status = 200, body = ConversationObject), Refusals<Problem>))]
pub(crate) async fn create(
    context: RequestContext,
    Extension(store): StoreExtension,
    body: Body,
) -> Result<Json<ConversationObject>, HttpError> {
    let (reading, owner) = (Arc::clone(&store), context.key.clone());
    let read = move |body: Value| {
        let asked: CreateConversation = wire::read(&body)?;
        let metadata = checked(asked.metadata.unwrap_or_default())?;
        let (items, warnings) = match &asked.items {
            Some(items) => items_of(items, &reading, &owner)?,
            None => Default::default(),
        };
        Ok((metadata, items, warnings))
    };
    let (metadata, items, warnings) = flow::read(&context.app, body, read).await?;
    let last = turn(None, items, &store);
    let (id, conversation, commit) = store.conversations.create(&context.key, metadata, last);
    store.fits();
    settled(commit).await;
    Ok(ConversationObject::new(id, conversation, warnings))
}

/// A conversation without its items.
#[utoipa::path(get, path = "/v1/conversations/{id}", tag = "OpenAI",
    params(("id" = String, Path)),
    responses((status = 200, body = ConversationObject), (status = 401, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn retrieve(
    context: RequestContext,
    Extension(store): StoreExtension,
    id: Id,
) -> Result<Json<ConversationObject>, HttpError> {
    let (id, conversation) = find(&store, &context.key, id)?;
    Ok(ConversationObject::new(id, conversation, Warnings::default()))
}

/// Gives a conversation other metadata.
#[utoipa::path(post, path = "/v1/conversations/{id}", tag = "OpenAI",
    params(("id" = String, Path)), request_body = UpdateConversation,
    responses((status = 200, body = ConversationObject), Refusals<Problem>))]
pub(crate) async fn update(
    context: RequestContext,
    Extension(store): StoreExtension,
    id: Id,
    body: Body,
) -> Result<Json<ConversationObject>, HttpError> {
    let (id, _) = find(&store, &context.key, id)?;
    let read = |body: Value| {
        let asked: UpdateConversation = wire::read(&body)?;
        checked(asked.metadata.ok_or_else(|| wire::missing("metadata"))?)
    };
    let metadata = flow::read(&context.app, body, read).await?;
    let described = store.conversations.describe(&context.key, &id, metadata);
    let (conversation, commit) = described.ok_or_else(|| unknown(&id))?;
    settled(commit).await;
    Ok(ConversationObject::new(id, conversation, Warnings::default()))
}

/// Removes a conversation with its items; responses that continued it stay.
#[utoipa::path(delete, path = "/v1/conversations/{id}", tag = "OpenAI",
    params(("id" = String, Path)),
    responses((status = 200, body = Removed), (status = 401, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn remove(
    context: RequestContext,
    Extension(store): StoreExtension,
    id: Id,
) -> Result<Json<Removed>, HttpError> {
    let (id, _) = find(&store, &context.key, id)?;
    let commit = store.conversations.remove(&context.key, &id).ok_or_else(|| unknown(&id))?;
    settled(commit).await;
    Ok(Json(Removed::new(id, "conversation.deleted")))
}

/// Adds items at the end of a conversation.
#[utoipa::path(post, path = "/v1/conversations/{id}/items", tag = "OpenAI",
    params(("id" = String, Path)), request_body = AddItems,
    responses((status = 200, body = ItemList), (status = 409, body = Problem), Refusals<Problem>))]
pub(crate) async fn add_items(
    context: RequestContext,
    Extension(store): StoreExtension,
    id: Id,
    body: Body,
) -> Result<Json<ItemList>, HttpError> {
    let (id, _) = find(&store, &context.key, id)?;
    let (reading, owner) = (Arc::clone(&store), context.key.clone());
    let read = move |body: Value| {
        let asked: AddItems = wire::read(&body)?;
        items_of(&asked.items.ok_or_else(|| wire::missing("items"))?, &reading, &owner)
    };
    let (items, warnings) = flow::read(&context.app, body, read).await?;
    let lease = lease(&store.conversations, &context.key, &id)?;
    let all = conversation(lease.last.as_deref(), &items);
    input::check_size(&all, context.app.options.body_limit, "items")?;
    let last = turn(lease.last.clone(), items.clone(), &store);
    let commit = lease.change(last);
    store.fits();
    settled(commit).await;
    Ok(Json(ItemList::whole(&items, warnings)))
}

/// The items of a conversation. `include` is taken; the items are always whole.
#[utoipa::path(get, path = "/v1/conversations/{id}/items", tag = "OpenAI",
    params(("id" = String, Path), Page),
    responses((status = 200, body = ItemList), (status = 400, body = Problem), (status = 401, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn items(
    context: RequestContext,
    Extension(store): StoreExtension,
    id: Id,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<ItemList>, HttpError> {
    let Query(page) = page.map_err(bad_query)?;
    let (_, conversation) = find(&store, &context.key, id)?;
    ItemList::of(all_items(conversation.last.as_deref()), &page).map(Json)
}

/// An item of a conversation.
#[utoipa::path(get, path = "/v1/conversations/{id}/items/{item}", tag = "OpenAI",
    params(("id" = String, Path), ("item" = String, Path)),
    responses((status = 200, body = Object), (status = 401, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn item(
    context: RequestContext,
    Extension(store): StoreExtension,
    ids: ItemId,
) -> Result<Json<Value>, HttpError> {
    let Path((id, item)) = ids.map_err(bad_path)?;
    let (_, conversation) = find(&store, &context.key, Ok(Path(id)))?;
    let items = all_items(conversation.last.as_deref());
    let found = items.iter().find(|one| one.id() == item).ok_or_else(|| unknown_item(&item))?;
    Ok(Json(found.json()))
}

/// Removes an item from a conversation.
#[utoipa::path(delete, path = "/v1/conversations/{id}/items/{item}", tag = "OpenAI",
    params(("id" = String, Path), ("item" = String, Path)),
    responses((status = 200, body = ConversationObject), (status = 401, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn remove_item(
    context: RequestContext,
    Extension(store): StoreExtension,
    ids: ItemId,
) -> Result<Json<ConversationObject>, HttpError> {
    let Path((id, item)) = ids.map_err(bad_path)?;
    let lease = lease(&store.conversations, &context.key, &id)?;
    let mut items = all_items(lease.last.as_deref());
    let before = items.len();
    items.retain(|one| one.id() != item);
    if items.len() == before {
        return Err(unknown_item(&item));
    }
    settled(lease.change(turn(None, items, &store))).await;
    let (id, conversation) = find(&store, &context.key, Ok(Path(id)))?;
    Ok(ConversationObject::new(id, conversation, Warnings::default()))
}

/// A turn of these items after `parent`; `parent` if there are none.
fn turn(
    parent: Option<Arc<StoredTurn>>,
    items: Vec<Arc<Item>>,
    store: &ResponseStore,
) -> Option<Arc<StoredTurn>> {
    if items.is_empty() {
        return parent;
    }
    Some(Arc::new(StoredTurn::new(parent, [0; 16], items, Vec::new(), &store.held)))
}

fn all_items(last: Option<&StoredTurn>) -> Vec<Arc<Item>> {
    conversation(last, &[])
}

/// The items that `given` lists; it may refer to stored ones of `owner`.
fn items_of(
    given: &Value,
    store: &ResponseStore,
    owner: &Owner,
) -> Result<(Vec<Arc<Item>>, Warnings), HttpError> {
    let list = given.as_array().ok_or_else(|| wrong("items", "an array of items", given))?;
    if list.len() > MAX_ITEMS {
        let message = format!("items must hold at most {MAX_ITEMS} items, not {}", list.len());
        return Err(HttpError::invalid("items", message));
    }
    let known = store.items(owner, [0; 16], &input::references(given, "items")?);
    let mut warnings = Warnings::default();
    let items = input::read(given, "items", &known, &mut warnings)?;
    Ok((items, warnings))
}

/// `metadata`, if it is small and of texts.
fn checked(metadata: Map<String, Value>) -> Result<Map<String, Value>, HttpError> {
    let refused = |message: String| Err(HttpError::invalid("metadata", message));
    if metadata.len() > MAX_PAIRS {
        let found = metadata.len();
        return refused(format!("metadata must have at most {MAX_PAIRS} members, not {found}"));
    }
    for (name, value) in &metadata {
        let Some(text) = value.as_str() else {
            return Err(wrong(&format!("metadata.{name}"), "a string", value));
        };
        if name.chars().count() > MAX_NAME || text.chars().count() > MAX_VALUE {
            return refused(format!(
                "a member of metadata must have at most {MAX_NAME} characters in its name and \
                 {MAX_VALUE} in its text"
            ));
        }
    }
    Ok(metadata)
}

fn find(
    store: &ResponseStore,
    owner: &Owner,
    id: Id,
) -> Result<(String, StoredConversation), HttpError> {
    let Path(id) = id.map_err(bad_path)?;
    let found = store.conversations.get(owner, &id).ok_or_else(|| unknown(&id))?;
    Ok((id, found))
}

fn unknown_item(id: &str) -> HttpError {
    let message = format!("item with id '{id}' not found in the conversation");
    HttpError::request(StatusCode::NOT_FOUND, message).with_code("item_not_found")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(metadata: Value, expected: Option<&str>) {
        let error = checked(metadata.as_object().unwrap().clone()).err();
        let param = error.map(|error| error.body()["error"]["param"].take());
        assert_eq!(param.as_ref().and_then(Value::as_str), expected, "{metadata}");
    }

    #[test]
    fn metadata_is_few_short_texts() {
        let pairs = |count: usize| (0..count).map(|at| (at.to_string(), json!("x"))).collect();
        check(Value::Object(pairs(16)), None);
        check(Value::Object(pairs(17)), Some("metadata"));
        check(json!({"a": "é".repeat(512)}), None);
        check(json!({"a": "é".repeat(513)}), Some("metadata"));
        check(json!({"é".repeat(65): "a"}), Some("metadata"));
        check(json!({"a": 3}), Some("metadata.a"));
    }
}
