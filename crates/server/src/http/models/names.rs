//! Which model a request names.

use crate::http::error::HttpError;
use crate::http::models::pooled_model::{LATEST, PooledModel};
use crate::http::wire;
use axum::http::StatusCode;
use std::sync::Arc;

/// 404: there is no model of this name.
pub(crate) fn unknown(name: &str) -> HttpError {
    let message = format!("no such model: {name}");
    HttpError::request(StatusCode::NOT_FOUND, message).with_code("model_not_found")
}

/// The entry that `name` means: by a name of its own, with or without the tag `latest`, or behind
/// one with a colon and an adapter, or by an adapter of a model that is loaded.
pub(super) fn find<'a>(
    entries: &'a [Arc<PooledModel>],
    name: Option<&str>,
) -> Result<&'a Arc<PooledModel>, HttpError> {
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return match entries {
            [only] => Ok(only),
            _ => Err(wire::missing("model")),
        };
    };
    // Its whole name means a model rather than the name of another with a tag.
    let exact = || entries.iter().find(|entry| entry.is_named(name));
    let tagged = || entries.iter().find(|entry| entry.answers_to(name));
    let base = || entries.iter().find(|entry| entry.names().any(|own| is_behind(own, name)));
    let adapter = || entries.iter().find(|entry| entry.has_adapter(name));
    let found = exact().or_else(tagged).or_else(base).or_else(adapter);
    found.ok_or_else(|| unknown(name))
}

/// Whether `name` is `own` with a colon and something behind it.
fn is_behind(own: &str, name: &str) -> bool {
    name.strip_prefix(own).is_some_and(|rest| rest.starts_with(':') && rest != LATEST)
}
