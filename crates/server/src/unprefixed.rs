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
const NAMES: [(&str, &str); 8] = [
    ("/completions", "/completion"),
    ("/embeddings", "/embedding"),
    ("/rerank", "/v1/rerank"),
    ("/reranking", "/v1/rerank"),
    ("/v1/reranking", "/v1/rerank"),
    ("/v2/rerank", "/v1/rerank"),
    ("/score", "/v1/score"),
    ("/v1/health", "/health"),
];

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
pub(crate) fn is_unprefixed(path: &str) -> bool {
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
    let mut named: Vec<(String, PathItem)> = named.collect();
    let mut shorter: Vec<(String, PathItem)> = shorter.collect();
    for (_, item) in &mut shorter {
        operations(item).for_each(rewrite);
    }
    for (path, item) in &mut named {
        let suffix = path.replace('/', "_");
        operations(item).for_each(|operation| rename(operation, &suffix));
    }
    document.paths.paths.extend(shorter.into_iter().chain(named));
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.post, &mut item.delete].into_iter().flatten()
}

/// Gives the operation a name of its own, which ends in `suffix`.
fn rename(operation: &mut Operation, suffix: &str) {
    operation.operation_id = operation.operation_id.as_ref().map(|id| format!("{id}{suffix}"));
}

/// Gives the operation a name and a tag of its own, and errors without a form: they are those of
/// llama.cpp's server.
fn rewrite(operation: &mut Operation) {
    rename(operation, "_unprefixed");
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
