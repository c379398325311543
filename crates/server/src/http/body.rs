//! Reading a request's body within its limits of size, time and depth.

use crate::http::error::HttpError;
use crate::http::options::ServerOptions;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use futures_util::StreamExt;
use serde_json::Value;

/// Most bytes beyond its limit that a body is read, so that its sender receives the error.
const MAX_EXCESS: usize = 64 << 20;

/// Most JSON values of one body. In memory a value takes many times the bytes it is written with.
const MAX_VALUES: usize = 2_000_000;

/// The bytes of `body`.
pub(crate) async fn read(body: Body, options: &ServerOptions) -> Result<Vec<u8>, HttpError> {
    let limit = options.body_timeout;
    let reading = tokio::time::timeout(limit, collect(body, options.body_limit));
    reading.await.unwrap_or_else(|_| {
        let message = format!("the body took longer than {} s", limit.as_secs());
        Err(HttpError::request(StatusCode::REQUEST_TIMEOUT, message))
    })
}

async fn collect(body: Body, limit: usize) -> Result<Vec<u8>, HttpError> {
    let mut parts = body.into_data_stream();
    let mut bytes = Vec::new();
    let mut excess = 0;
    while let Some(part) = parts.next().await {
        let part: Bytes = part.map_err(|error| {
            HttpError::request(StatusCode::BAD_REQUEST, format!("the body broke off: {error}"))
        })?;
        if excess > 0 || bytes.len() + part.len() > limit {
            excess += part.len();
            bytes = Vec::new();
        } else {
            bytes.extend_from_slice(&part);
        }
        if excess > MAX_EXCESS {
            break;
        }
    }
    match excess {
        0 => Ok(bytes),
        _ => Err(too_large(format!("the body is larger than {limit} bytes"))),
    }
}

/// 413: a body, or what it holds, is larger than allowed.
pub(crate) fn too_large(message: String) -> HttpError {
    HttpError::request(StatusCode::PAYLOAD_TOO_LARGE, message).with_code("body_too_large")
}

/// What some programs put before a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// `body` as JSON of at most `max_depth` levels and a bounded number of values.
pub(crate) fn json(body: &[u8], max_depth: usize) -> Result<Value, HttpError> {
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    let JsonShape { depth, values } = JsonShape::of(body);
    if depth > max_depth {
        let message =
            format!("the body's JSON is nested {depth} deep; {max_depth} is allowed (json-depth)");
        return Err(HttpError::invalid("", message).with_code("body_too_deep"));
    }
    if values > MAX_VALUES {
        return Err(too_large(format!("the body holds more than {MAX_VALUES} JSON values")));
    }
    serde_json::from_slice(body)
        .map_err(|error| HttpError::invalid("", format!("the body is no valid JSON: {error}")))
}

/// What bytes would be as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct JsonShape {
    /// At least the number of values: commas and openings outside strings.
    values: usize,
    /// The deepest nesting.
    depth: usize,
}

impl JsonShape {
    fn of(bytes: &[u8]) -> Self {
        let mut shape = Self { values: 1, depth: 0 };
        let mut open = 0_usize;
        let mut rest = bytes.iter();
        while let Some(byte) = rest.next() {
            match byte {
                b'[' | b'{' => {
                    shape.values += 1;
                    open += 1;
                    shape.depth = shape.depth.max(open);
                }
                b']' | b'}' => open = open.saturating_sub(1),
                b',' => shape.values += 1,
                b'"' => skip_string(&mut rest),
                _ => {}
            }
        }
        shape
    }
}

fn skip_string<'a>(rest: &mut impl Iterator<Item = &'a u8>) {
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => return,
            b'\\' => _ = rest.next(),
            _ => {}
        }
    }
}

/// Parses any bytes as a body of default limits. For fuzzing.
#[doc(hidden)]
pub fn check_body(bytes: &[u8]) -> bool {
    json(bytes, ServerOptions::MAX_JSON_DEPTH).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, values: usize, depth: usize) {
        assert_eq!(JsonShape::of(json.as_bytes()), JsonShape { values, depth }, "{json}");
    }

    #[test]
    fn values_and_depth_are_counted_outside_strings() {
        check("1", 1, 0);
        check("[1,2,3]", 4, 1);
        check(r#"{"a": [1, 2], "b": {}}"#, 6, 2);
        check(r#""a,b[c{\",d\\",1"#, 2, 0);
        check(r#"",,,"#, 1, 0);
        check("]]]}[[]", 3, 2);
    }

    #[test]
    fn many_small_values_are_refused_before_they_take_memory() {
        let list = format!("[{}1]", "1,".repeat(MAX_VALUES));
        assert!(json(list.as_bytes(), 9).is_err());
        assert!(json(b"[1,1]", 9).is_ok());
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_json() {
        assert_eq!(json(b"\xef\xbb\xbf{}", 9).unwrap(), serde_json::json!({}));
        assert!(json(b"\xef\xbb\xbf\xef\xbb\xbf{}", 9).is_err());
    }

    fn nested(depth: usize) -> String {
        "[".repeat(depth) + &"]".repeat(depth)
    }

    #[test]
    fn the_limit_of_depth_is_the_error_that_is_told() {
        for limit in [0, 1, 5, ServerOptions::MAX_JSON_DEPTH] {
            assert!(json(nested(limit).as_bytes(), limit).is_ok() || limit == 0, "{limit}");
            let error = json(nested(limit + 1).as_bytes(), limit).unwrap_err().body();
            let message = error["error"]["message"].as_str().unwrap();
            assert!(message.contains(&format!("{limit} is allowed (json-depth)")), "{message}");
        }
    }
}
