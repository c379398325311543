//! Middleware of every route: request ids, access log, API keys, rate limits, and the refusal of
//! new work during shutdown.

use crate::app::App;
use crate::http::caller::{self, Caller, Peer};
use crate::http::error::HttpError;
use crate::http::limits::TokenCharge;
use crate::http::shutdown::Phase;
use crate::http::{random, rate_limit_headers};
use api::RequestOptions;
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

/// Routes that need no key: those for supervisors, and the page with its description of the
/// routes, which asks for a key itself.
const KEYLESS: [&str; 6] = [HEALTH, V1_HEALTH, READY, "/", "/docs", "/openapi.json"];
/// Routes that are no work, and stay open to the end.
const WATCHING: [&str; 5] = [HEALTH, V1_HEALTH, READY, METRICS, STATS];

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Most characters of a name that a client gives its request.
const MAX_ID_BYTES: usize = 64;

/// The id of a request in its log lines and its response, and the charge for its tokens.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub Arc<str>, TokenCharge);

impl RequestId {
    /// The client's own, if it may stand in a log line, else a new one.
    fn of(headers: &HeaderMap) -> Self {
        let sane = |id: &&str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(plain)
        };
        let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(sane);
        Self(given.map_or_else(|| random::id("req_").into(), Arc::from), TokenCharge::default())
    }

    /// Charges the request's tokens to `charge` from now on.
    pub fn charge(&mut self, charge: TokenCharge) {
        self.1 = charge;
    }

    /// Writes tokens of the prompt or the answer down where its caller's are counted.
    pub fn spend(&self, tokens: usize) {
        self.1.spend(tokens);
    }
}

/// Names the response, and counts and logs it once its status is known.
pub(crate) async fn log(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let start = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let id = RequestId::of(request.headers());
    let peer = request.extensions().get::<Peer>().copied();
    request.extensions_mut().insert(id.clone());
    let mut response = next.run(request).await;
    app.observability
        .http
        .responded(route.as_ref().map_or("other", MatchedPath::as_str), response.status());
    let caller = response.extensions_mut().remove().unwrap_or_else(|| Caller::at(peer));
    tracing::info!(
        request_id = &*id.0,
        caller = &*caller.label,
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

/// The terms of a request on behalf of the key it came with, and of its `user` among those of
/// that key: who has another key cannot pass for them.
pub(crate) fn on_behalf(options: RequestOptions, headers: &HeaderMap) -> RequestOptions {
    let tenant = match (caller::tenant(headers), &options.tenant) {
        (Some(key), Some(user)) => Some(format!("{key} {user}")),
        (key, user) => user.clone().or(key),
    };
    RequestOptions { tenant, ..options }
}

/// Lets a request pass if it has a key, its caller has not had too much, and the server still
/// takes work.
pub(crate) async fn admit(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let (path, method) = (request.uri().path(), request.method().clone());
    let keyless = KEYLESS.contains(&path) || method == Method::OPTIONS;
    let late = !WATCHING.contains(&path) && method != Method::OPTIONS;
    let peer = request.extensions().get::<Peer>().copied();
    let admitted = Caller::admit(&mut request, &app.options.keys);
    let Some(caller) = admitted.or_else(|| keyless.then(|| Caller::at(peer))) else {
        return stranger();
    };
    if late && app.conditions.life.phase() > Phase::Serving {
        return HttpError::shutting_down().into_response();
    }
    // What asks the model for something is posted; all else is a look, or an end.
    let mut response = match method {
        Method::POST if !ends_work(request.uri().path()) => {
            rate_limit_headers::answer(&app.limits, caller.identity, request, next).await
        }
        _ => next.run(request).await,
    };
    response.extensions_mut().insert(caller);
    response
}

/// Whether a request asks for less than there is: who has too much under way must be able to.
fn ends_work(path: &str) -> bool {
    path.strip_prefix("/v1/responses/").is_some_and(|rest| rest.ends_with("/cancel"))
}

/// The answer to a request without a key, or with a wrong one.
fn stranger() -> Response {
    let error = HttpError::request(StatusCode::UNAUTHORIZED, "the API key is missing or wrong");
    let mut response = error.with_code("invalid_api_key").into_response();
    let scheme = HeaderValue::from_static("Bearer");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    response
}

/// The answer in place of a handler that panicked.
pub(crate) fn panicked(_: Box<dyn Any + Send + 'static>) -> Response {
    HttpError::server(StatusCode::INTERNAL_SERVER_ERROR, "internal error").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::keys::ApiKeys;

    #[test]
    fn users_are_those_of_their_key() {
        let tenant = |headers: &[(&'static str, &str)], user: Option<&str>| {
            let keys = ApiKeys::default();
            let request = headers
                .iter()
                .fold(Request::builder(), |request, (name, value)| request.header(*name, *value));
            let mut request = request.body(axum::body::Body::empty()).unwrap();
            Caller::admit(&mut request, &keys);
            let options =
                RequestOptions { tenant: user.map(str::to_owned), ..RequestOptions::default() };
            on_behalf(options, request.headers()).tenant
        };
        let [one, two] = [[("x-api-key", "one")], [("x-api-key", "two")]];
        assert_ne!(tenant(&one, Some("u")), tenant(&two, Some("u")));
        assert_ne!(tenant(&one, Some("u")), tenant(&one, Some("v")));
        assert_ne!(tenant(&one, Some("u")), tenant(&one, None));
        assert_eq!(tenant(&one, Some("u")), tenant(&one, Some("u")));
        assert_eq!(tenant(&[], Some("u")).as_deref(), Some("u"));
        assert_eq!(tenant(&[], None), None);
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
}
