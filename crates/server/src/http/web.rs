//! The pages of the server, from files in the program: at `/` a chat over this server's own routes,
//! at `/docs` a description of them.
//!
//! Invariant: the page is public and knows nothing. It needs no key, because it holds only what
//! every copy of this program holds; all else it asks of the routes that do need one. Its policy
//! lets a browser load from here alone, run no script that stands in text, and turn no text into
//! elements but what the sanitiser DOMPurify, whose policy of trusted types it names, lets through.

mod assets;

use crate::http::error::HttpError;
use crate::http::fallback::wrong_method;
use assets::{ASSETS, Asset, PAGE, REFERENCE};
use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};

const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; object-src 'none'; \
                      require-trusted-types-for 'script'; trusted-types dompurify";

/// Headers of every file. A browser asks each time whether its copy is still the one, so that
/// the page and the server are always of one version.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::CACHE_CONTROL, "no-cache"),
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// The page and its files.
pub(crate) fn routes() -> Router {
    Router::new()
        .route("/", page(&PAGE))
        .route("/docs", page(&REFERENCE))
        .route("/ui/{*file}", get(file).fallback(wrong_method))
}

fn page(asset: &'static Asset) -> MethodRouter {
    get(async move |headers: HeaderMap| answer(asset, &headers)).fallback(wrong_method)
}

async fn file(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, HttpError> {
    let found = ASSETS.iter().find(|asset| asset.name == name);
    found.map(|asset| answer(asset, &headers)).ok_or_else(|| {
        let message = format!("the page has no file {name}");
        HttpError::request(StatusCode::NOT_FOUND, message).with_code("unknown_endpoint")
    })
}

/// The file, or that the client has it.
fn answer(asset: &Asset, headers: &HeaderMap) -> Response {
    let tag = asset.tag();
    let mut response = if has(headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, asset.content_type())], asset.bytes).into_response()
    };
    let out = response.headers_mut();
    out.extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        out.insert(header::ETAG, tag);
    }
    response
}

/// Whether one of the client's copies is the one named `tag`.
fn has(headers: &HeaderMap, tag: &str) -> bool {
    let given =
        headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    given
        .flat_map(|list| list.split(','))
        .map(|one| one.trim())
        .any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &str, expected: bool) {
        let headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, given.parse().unwrap())]);
        assert_eq!(has(&headers, "\"a1\""), expected, "{given}");
    }

    #[test]
    fn a_copy_is_known_by_its_tag() {
        check("\"a1\"", true);
        check("W/\"a1\"", true);
        check("\"b2\", \"a1\"", true);
        check("*", true);
        check("\"a\"", false);
        check("a1", false);
        check("", false);
        assert!(!has(&HeaderMap::new(), "\"a1\""));
    }
}
