//! Middleware of every route: request ids, access log, API keys, rate limits, and the refusal of
//! new work during shutdown.

use crate::http::app::App;
use crate::http::caller::{Caller, Peer};
use crate::http::error::HttpError;
use crate::http::observability::cache::CACHE;
use crate::http::rate_limit_headers;
use crate::http::request::{REQUEST_ID, RequestId};
use crate::http::shutdown::Phase;
use axum::extract::{MatchedPath, OriginalUri, Request, State};
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::any::Any;
use std::time::Instant;

/// The routes that admission treats differently, by their paths as the router has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exemptions {
    /// Routes that need no API key.
    pub keyless: &'static [&'static str],
    /// Routes that are no work, and are answered during shutdown too.
    pub open_to_the_end: &'static [&'static str],
    /// Routes that end work: a caller that has reached its limits may still use them.
    pub unlimited: &'static [&'static str],
}

impl Exemptions {
    /// No route is treated differently.
    pub const NONE: Self = Self { keyless: &[], open_to_the_end: &[], unlimited: &[] };
}

/// Names the response, and counts and logs it once its status is known.
pub(crate) async fn log(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let start = Instant::now();
    let uri = request.extensions().get::<OriginalUri>().map_or(request.uri(), |uri| &uri.0);
    let (method, path) = (request.method().clone(), uri.path().to_owned());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let id = RequestId::of(request.headers());
    let peer = request.extensions().get::<Peer>().copied();
    request.extensions_mut().insert(id.clone());
    let mut response = next.run(request).await;
    let route = route.as_ref().map_or("other", MatchedPath::as_str);
    app.observability.http.responded(route, response.status());
    let caller = response.extensions_mut().remove().unwrap_or_else(|| Caller::at(peer));
    tracing::info!(
        request_id = &*id.name,
        caller = &*caller.label,
        %method,
        path,
        status = response.status().as_u16(),
        ms = start.elapsed().as_millis() as u64,
        "request"
    );
    if let Some(found) = id.cache.get().and_then(|reports| reports.header()) {
        response.headers_mut().insert(CACHE, found);
    }
    if let Ok(id) = HeaderValue::from_str(&id.name) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// Lets a request pass if it has a key, its caller is within its limits, and the server still
/// takes work.
pub(crate) async fn admit(
    State((app, exemptions)): State<(App, Exemptions)>,
    mut request: Request,
    next: Next,
) -> Response {
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let is_in = |routes: &[&str]| route.as_ref().is_some_and(|at| routes.contains(&at.as_str()));
    let keyless = is_in(exemptions.keyless) || method == Method::OPTIONS;
    let late = !is_in(exemptions.open_to_the_end) && method != Method::OPTIONS;
    let peer = request.extensions().get::<Peer>().copied();
    let admitted = Caller::admit(&mut request, &app.options.keys);
    let Some(caller) = admitted.or_else(|| keyless.then(|| Caller::at(peer))) else {
        return stranger();
    };
    if late && app.life.phase() > Phase::Serving {
        return HttpError::shutting_down().into_response();
    }
    request.extensions_mut().insert(caller.clone());
    // Requests for work are posted; all others ask about it, or end it.
    let mut response = match method {
        Method::POST if !is_in(exemptions.unlimited) => {
            rate_limit_headers::answer(&app.limits, caller.identity, request, next).await
        }
        _ => next.run(request).await,
    };
    response.extensions_mut().insert(caller);
    response
}

/// The answer to a request without a key, or with a wrong one.
fn stranger() -> Response {
    let mut response = HttpError::unauthorized().into_response();
    let scheme = HeaderValue::from_static("Bearer");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    response
}

/// The answer in place of a handler that panicked.
pub(crate) fn panicked(_: Box<dyn Any + Send + 'static>) -> Response {
    HttpError::internal().into_response()
}
