//! Middleware of every route: request ids, access log, API keys, rate limits, and the refusal of
//! new work during shutdown.

use crate::http::app::App;
use crate::http::caller::{Caller, Peer};
use crate::http::error::HttpError;
use crate::http::rate_limit_headers;
use crate::http::request::{REQUEST_ID, RequestId};
use crate::http::shutdown::Phase;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::any::Any;
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
    if late && app.life.phase() > Phase::Serving {
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
