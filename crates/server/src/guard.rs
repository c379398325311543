//! What stands before every route: the request's name, count and log line, the key, and the
//! refusal of new work during shutdown.

use crate::app::App;
use crate::fault::Fault;
use crate::random;
use crate::shutdown::Phase;
use api::Terms;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

/// Whether the engine lives.
pub(crate) const HEALTH: &str = "/health";
/// Whether requests are answered.
pub(crate) const READY: &str = "/ready";
/// Counts for Prometheus.
pub(crate) const METRICS: &str = "/metrics";
/// Counts for people.
pub(crate) const STATS: &str = "/v1/stats";

/// The same, where clients of llama.cpp look.
pub(crate) const V1_HEALTH: &str = "/v1/health";

/// Routes that need no key.
const KEYLESS: [&str; 3] = [HEALTH, V1_HEALTH, READY];
/// Routes that are no work, and stay open to the end.
const WATCHING: [&str; 5] = [HEALTH, V1_HEALTH, READY, METRICS, STATS];

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Most characters of a name that a client gives its request.
const LONGEST_ID: usize = 64;

/// The name of a request, in its log lines and its response.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub Arc<str>);

impl RequestId {
    /// The client's own, if it may stand in a log line, else a new one.
    fn of(headers: &HeaderMap) -> Self {
        let sane = |id: &&str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(plain)
        };
        let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(sane);
        Self(given.map_or_else(|| random::id("req_").into(), Arc::from))
    }
}

/// Names the response, and counts and logs it once its status is known.
pub(crate) async fn log(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let start = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let id = RequestId::of(request.headers());
    request.extensions_mut().insert(id.clone());
    let mut response = next.run(request).await;
    app.watch
        .http
        .responded(route.as_ref().map_or("other", MatchedPath::as_str), response.status());
    tracing::info!(
        request_id = &*id.0,
        %method,
        path,
        status = response.status().as_u16(),
        ms = start.elapsed().as_millis() as u64,
        "request"
    );
    if let Ok(id) = HeaderValue::from_str(&id.0) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// The terms of a request on behalf of its `user`, else of the key it came with.
pub(crate) fn on_behalf(terms: Terms, headers: &HeaderMap) -> Terms {
    let key = || Some(headers.get(header::AUTHORIZATION)?.to_str().ok()?.to_owned());
    let tenant = terms.tenant.clone().or_else(key);
    Terms { tenant, ..terms }
}

/// Lets a request pass if it has the key and the server still takes work.
pub(crate) async fn admit(State(app): State<App>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let keyless = KEYLESS.contains(&path) || request.method() == Method::OPTIONS;
    let work = !WATCHING.contains(&path) && request.method() != Method::OPTIONS;
    if !keyless && !has_key(request.headers(), app.options.api_key.as_deref()) {
        let fault = Fault::request(StatusCode::UNAUTHORIZED, "the API key is missing or wrong");
        return fault.with_code("invalid_api_key").into_response();
    }
    if work && app.conditions.life.phase() > Phase::Serving {
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

    fn check_id(given: &str, taken: bool) {
        let headers = HeaderMap::from_iter([(REQUEST_ID, given.parse().unwrap())]);
        let id = RequestId::of(&headers).0;
        assert_eq!(&*id == given, taken, "{given:?} became {id:?}");
    }

    #[test]
    fn names_of_clients_are_taken_if_they_are_plain() {
        check_id("abc-DEF_1.2", true);
        check_id(&"x".repeat(64), true);
        check_id(&"x".repeat(65), false);
        check_id("", false);
        check_id("a b", false);
        check_id("a\"b", false);
        check_id("a=b", false);
        assert!(RequestId::of(&HeaderMap::new()).0.starts_with("req_"));
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
