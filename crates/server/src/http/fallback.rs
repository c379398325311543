//! Errors of requests that no handler takes.

use crate::http::error::HttpError;
use axum::extract::OriginalUri;
use axum::http::{Method, StatusCode, Uri};

/// The error of a path that is no route.
pub(crate) async fn unknown_route(method: Method, OriginalUri(uri): OriginalUri) -> HttpError {
    let message = format!("no such endpoint: {method} {}", uri.path());
    HttpError::request(StatusCode::NOT_FOUND, message).with_code("unknown_endpoint")
}

/// The error of a route that does not take the method.
pub(crate) async fn wrong_method(method: Method, uri: Uri) -> HttpError {
    let message = format!("{} does not take {method}", uri.path());
    HttpError::request(StatusCode::METHOD_NOT_ALLOWED, message).with_code("method_not_allowed")
}
