//! The origins from which browsers may open WebSockets. Browsers ask nothing before they open one
//! and let every page read what comes, so that the server must refuse the pages of others.

use crate::http::error::HttpError;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};

/// Stands for every origin of this machine.
pub(crate) const LOCALHOST: &str = "localhost";

/// Whether an origin is one of this machine, over HTTP or TLS, at any port.
pub(crate) fn is_local(origin: &HeaderValue) -> bool {
    let is_local = |origin: &str| {
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))?;
        let rest =
            ["localhost", "127.0.0.1", "[::1]"].iter().find_map(|name| host.strip_prefix(name))?;
        let port = rest.strip_prefix(':').map(str::parse::<u16>);
        Some(rest.is_empty() || port.is_some_and(|port| port.is_ok()))
    };
    origin.to_str().ok().and_then(is_local).unwrap_or(false)
}

/// Refuses the pages of origins other than the server's own and `allowed`: `*`, `localhost`, or one
/// origin.
/// Clients that are no browsers send no origin.
pub(crate) fn check(headers: &HeaderMap, allowed: Option<&str>) -> Result<(), HttpError> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = origin.to_str().ok().and_then(|origin| Some(origin.split_once("://")?.1));
    let own = host.zip(text(header::HOST)).is_some_and(|(a, b)| a.eq_ignore_ascii_case(b));
    let named = allowed.is_some_and(|one| match one {
        "*" => true,
        LOCALHOST => is_local(origin),
        one => one.as_bytes() == origin.as_bytes(),
    });
    if own || named {
        return Ok(());
    }
    let message = format!("pages of {origin:?} may not connect; --cors allows an origin");
    Err(HttpError::request(StatusCode::FORBIDDEN, message).with_code("origin_not_allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(origin: Option<&str>, allowed: Option<&str>, expected: bool) {
        let mut headers = HeaderMap::from_iter([(header::HOST, "127.0.0.1:8080".parse().unwrap())]);
        headers.extend(origin.map(|origin| (header::ORIGIN, origin.parse().unwrap())));
        assert_eq!(super::check(&headers, allowed).is_ok(), expected, "{origin:?} {allowed:?}");
    }

    #[test]
    fn pages_of_others_may_not_connect() {
        check(None, None, true);
        check(Some("http://127.0.0.1:8080"), None, true);
        check(Some("http://127.0.0.1:8081"), None, false);
        check(Some("https://evil.example"), None, false);
        check(Some("null"), None, false);
        check(Some("https://app.example"), Some("https://app.example"), true);
        check(Some("https://app.example.evil"), Some("https://app.example"), false);
        check(Some("https://evil.example"), Some("*"), true);
        check(Some("http://localhost:5173"), Some("localhost"), true);
        check(Some("http://localhost.evil.example"), Some("localhost"), false);
    }
}
