//! Routes of llama.cpp's server that are other protocols' routes without `/v1`.
//!
//! Source: the README of llama.cpp's server. A request to such a path is one to the route with
//! `/v1`, with errors in the form of llama.cpp's server. `/completions` and `/embeddings` are not
//! among them: they have a form of their own there.

use crate::http::protocol::{ErrorForm, Protocol};
use crate::protocols::llama::Llama;
use axum::Router;
use axum::extract::Request;
use axum::http::Uri;
use axum::http::uri::PathAndQuery;
use tower::ServiceExt;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::{OpenApi, RefOr};

/// The prefix that clients may leave out.
const PREFIX: &str = "/v1";
/// The paths that are also served without the prefix, with all paths below them.
const PATHS: [&str; 3] = ["/chat/completions", "/models", "/responses"];
/// Further paths with the route that each is a name of.
const NAMES: [(&str, &str); 2] = [("/completions", "/completion"), ("/embeddings", "/embedding")];

/// `router`, with its routes of other protocols served without their prefix too.
pub(crate) fn served(router: Router) -> Router {
    Router::new().fallback_service(router.map_request(prefixed))
}

/// The request for the route with the prefix.
fn prefixed(mut request: Request) -> Request {
    if !is_unprefixed(request.uri().path()) {
        return request;
    }
    let old = request.uri().path_and_query().map_or("", PathAndQuery::as_str);
    let path = format!("{PREFIX}{old}").parse::<PathAndQuery>();
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = path.ok();
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
        request.extensions_mut().insert(ErrorForm(Llama::json));
    }
    request
}

/// Whether `path` is one of a route without its prefix.
fn is_unprefixed(path: &str) -> bool {
    let below = |rest: &str| rest.is_empty() || rest.starts_with('/');
    PATHS.iter().any(|known| path.strip_prefix(known).is_some_and(below))
}

/// Adds these routes to the document, for each route of which they are another name.
pub(crate) fn describe(document: &mut OpenApi) {
    let all = &document.paths.paths;
    let shorter = all.iter().filter_map(|(path, item)| {
        let path = path.strip_prefix(PREFIX).filter(|path| is_unprefixed(path))?;
        Some((path.to_owned(), item.clone()))
    });
    let named =
        NAMES.iter().filter_map(|&(name, path)| Some((name.to_owned(), all.get(path)?.clone())));
    let found: Vec<(String, PathItem)> = shorter.chain(named).collect();
    for (path, mut item) in found {
        let operations = [&mut item.get, &mut item.post, &mut item.delete];
        operations.into_iter().flatten().for_each(rewrite);
        document.paths.paths.insert(path, item);
    }
}

/// Gives the operation a name and a tag of its own, and errors without a form: they are those of
/// llama.cpp's server.
fn rewrite(operation: &mut Operation) {
    operation.operation_id = operation.operation_id.as_ref().map(|id| format!("{id}_unprefixed"));
    operation.tags = Some(vec!["llama.cpp".to_owned()]);
    for (status, response) in &mut operation.responses.responses {
        match response {
            RefOr::T(response) if !status.starts_with('2') => response.content.clear(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn check(path: &str, expected: &str) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        assert_eq!(prefixed(request).uri().to_string(), expected);
    }

    #[test]
    fn only_whole_segments_are_prefixed() {
        check("/chat/completions", "/v1/chat/completions");
        check("/chat/completions/input_tokens", "/v1/chat/completions/input_tokens");
        check("/models?client_version=1", "/v1/models?client_version=1");
        check("/models/a/b", "/v1/models/a/b");
        check("/responses/x/input_items?limit=2", "/v1/responses/x/input_items?limit=2");
        check("/modelsx", "/modelsx");
        check("/v1/models", "/v1/models");
        check("/completions", "/completions");
    }
}
