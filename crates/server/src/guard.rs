//! What stands before every route: the request's name and log line, the key, and the refusal of
//! new work during shutdown.

use crate::app::App;
use crate::fault::Fault;
use crate::random;
use crate::shutdown::Phase;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::any::Any;
use std::time::Instant;

/// The route that needs no key and stays open to the end.
pub(crate) const HEALTH: &str = "/health";

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Names the response and logs it once its status is known.
pub(crate) async fn log(request: Request, next: Next) -> Response {
    let start = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let id = random::id("req_");
    let mut response = next.run(request).await;
    tracing::info!(
        id,
        %method,
        path,
        status = response.status().as_u16(),
        ms = start.elapsed().as_millis() as u64,
        "request"
    );
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// Lets a request pass if it has the key and the server still takes work.
pub(crate) async fn admit(State(app): State<App>, request: Request, next: Next) -> Response {
    if request.uri().path() == HEALTH || request.method() == Method::OPTIONS {
        return next.run(request).await;
    }
    if !has_key(request.headers(), app.options.api_key.as_deref()) {
        let fault = Fault::request(StatusCode::UNAUTHORIZED, "the API key is missing or wrong");
        return fault.with_code("invalid_api_key").into_response();
    }
    if app.conditions.life.phase() > Phase::Serving {
        return Fault::shutting_down().into_response();
    }
    next.run(request).await
}

/// The answer in place of a handler that panicked.
pub(crate) fn panicked(_: Box<dyn Any + Send + 'static>) -> Response {
    Fault::server(StatusCode::INTERNAL_SERVER_ERROR, "internal error").into_response()
}

fn has_key(headers: &HeaderMap, key: Option<&str>) -> bool {
    let Some(key) = key else { return true };
    let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    match given.split_at_checked("Bearer ".len()) {
        Some((scheme, given)) => {
            scheme.eq_ignore_ascii_case(b"Bearer ") && same(given, key.as_bytes())
        }
        None => false,
    }
}

/// Compares in a time that depends on the lengths alone.
fn same(given: &[u8], key: &[u8]) -> bool {
    let differing = given.iter().zip(key).fold(0, |bits, (a, b)| bits | (a ^ b));
    given.len() == key.len() && std::hint::black_box(differing) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(authorization: Option<&str>, key: Option<&str>, expected: bool) {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        }
        assert_eq!(has_key(&headers, key), expected, "{authorization:?} {key:?}");
    }

    #[test]
    fn only_the_whole_key_opens() {
        check(None, None, true);
        check(Some("Bearer secret"), Some("secret"), true);
        check(Some("bearer secret"), Some("secret"), true);
        check(Some("Bearer secre"), Some("secret"), false);
        check(Some("Bearer secret2"), Some("secret"), false);
        check(Some("Bearer Secret"), Some("secret"), false);
        check(Some("secret"), Some("secret"), false);
        check(None, Some("secret"), false);
    }
}
