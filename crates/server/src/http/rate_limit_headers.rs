//! Rate limits of callers, applied to requests and reported in headers of responses.

use crate::http::caller::Identity;
use crate::http::error::HttpError;
use crate::http::limits::{Limits, QuotaStatus, RateLimited};
use crate::http::request::RequestId;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use std::time::Duration;

/// Names of the headers: the limit, what remains of it, and when all of it is there again.
type HeaderNames = [HeaderName; 3];

const REQUESTS: HeaderNames = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
const TOKENS: HeaderNames = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

/// Every header by which a client learns of its limits.
pub(crate) fn headers() -> impl Iterator<Item = HeaderName> {
    REQUESTS.into_iter().chain(TOKENS)
}

/// Answers a request of `caller` within its limits, with the headers that say what remains.
pub(crate) async fn answer(
    limits: &Limits,
    caller: Identity,
    mut request: Request,
    next: Next,
) -> Response {
    let admission = match limits.admit(caller) {
        Ok(admission) => admission,
        Err(rate_limited) => return refusal(rate_limited),
    };
    if let Some(id) = request.extensions_mut().get_mut::<RequestId>() {
        id.charge = admission.charge.clone();
    }
    let mut response = next.run(request).await;
    insert_quotas(response.headers_mut(), &admission.quotas);
    // The body holds the admission until it is sent or dropped.
    response.map(|body| {
        Body::new(body.map_err(move |error| {
            let _held = &admission;
            error
        }))
    })
}

/// The answer to a request beyond a limit.
pub(crate) fn refusal(rate_limited: RateLimited) -> Response {
    let error = HttpError::rate_limited(rate_limited.message).with_code("rate_limit_exceeded");
    let mut response = error.into_response();
    let headers = response.headers_mut();
    insert_quotas(headers, &rate_limited.quotas);
    headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(rate_limited.wait).max(1)));
    response
}

fn insert_quotas(headers: &mut HeaderMap, quotas: &QuotaStatus) {
    let quotas = [(REQUESTS, quotas.requests), (TOKENS, quotas.tokens)];
    for ([limit, remaining, reset], quota) in quotas {
        let Some(quota) = quota else { continue };
        headers.insert(limit, quota.limit.into());
        headers.insert(remaining, quota.remaining.into());
        if let Ok(time) = HeaderValue::from_str(&duration_text(quota.reset)) {
            headers.insert(reset, time);
        }
    }
}

/// A time as OpenAI writes it: `250ms`, `12s`, `6m0s`.
fn duration_text(time: Duration) -> String {
    let millis = time.as_micros().div_ceil(1000);
    match whole_seconds(time) {
        _ if millis < 1000 => format!("{millis}ms"),
        seconds if seconds < 60 => format!("{seconds}s"),
        seconds => format!("{}m{}s", seconds / 60, seconds % 60),
    }
}

/// Whole seconds, rounded up, so that a client that waits so long is not early.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up() {
        let duration_text = |millis| duration_text(Duration::from_millis(millis));
        assert_eq!(duration_text(0), "0ms");
        assert_eq!(duration_text(250), "250ms");
        assert_eq!(duration_text(999), "999ms");
        assert_eq!(duration_text(1001), "2s");
        assert_eq!(duration_text(360_000), "6m0s");
        assert_eq!(super::duration_text(Duration::from_nanos(999_999_999)), "1s");
    }
}
