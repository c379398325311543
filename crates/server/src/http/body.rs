//! Reading a request's body within its limits of size, time and depth.

use crate::http::error::HttpError;
use crate::http::options::ServerOptions;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use futures_util::StreamExt;
use serde_json::Value;
use std::ops::Deref;
use std::time::Duration;

/// How far over its limit a body is read, so that its sender gets to see the answer.
const POLITELY_READ: usize = 64 << 20;

/// Most JSON values of one body. In memory a value takes many times the bytes it is written with.
const MAX_VALUES: usize = 2_000_000;

/// The bytes of a body, and how deep their JSON may be.
#[derive(Debug)]
pub(crate) struct Received {
    bytes: Vec<u8>,
    depth: usize,
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The bytes of `body`.
pub(crate) async fn read(body: Body, options: &ServerOptions) -> Result<Received, HttpError> {
    let bytes = timed(options.body_timeout, collect(body, options.body_limit)).await?;
    Ok(Received { bytes, depth: options.json_depth })
}

async fn timed(
    limit: Duration,
    reading: impl Future<Output = Result<Vec<u8>, HttpError>>,
) -> Result<Vec<u8>, HttpError> {
    tokio::time::timeout(limit, reading).await.unwrap_or_else(|_| {
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
        if excess > POLITELY_READ {
            break;
        }
    }
    if excess > 0 { Err(too_large(limit)) } else { Ok(bytes) }
}

fn too_large(limit: usize) -> HttpError {
    let message = format!("the body is larger than {limit} bytes");
    HttpError::request(StatusCode::PAYLOAD_TOO_LARGE, message).with_code("body_too_large")
}

/// `body` as JSON of bounded depth and number of values.
pub(crate) fn json(body: &Received) -> Result<Value, HttpError> {
    let shape = JsonShape::of(body);
    if shape.depth > body.depth {
        let message = format!(
            "the body's JSON is nested {} deep; {} is allowed (json-depth)",
            shape.depth, body.depth
        );
        return Err(HttpError::invalid("", message).with_code("body_too_deep"));
    }
    if shape.values > MAX_VALUES {
        let message = format!("the body holds more than {MAX_VALUES} JSON values");
        return Err(
            HttpError::request(StatusCode::PAYLOAD_TOO_LARGE, message).with_code("body_too_large")
        );
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
    json(&Received { bytes: bytes.to_vec(), depth: ServerOptions::MAX_JSON_DEPTH }).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, values: usize, depth: usize) {
        assert_eq!(JsonShape::of(json.as_bytes()), JsonShape { values, depth }, "{json}");
    }

    fn received(text: &str, depth: usize) -> Received {
        Received { bytes: text.as_bytes().to_vec(), depth }
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
        assert!(json(&received(&list, 9)).is_err());
        assert!(json(&received("[1,1]", 9)).is_ok());
    }

    fn nested(depth: usize) -> String {
        "[".repeat(depth) + &"]".repeat(depth)
    }

    #[test]
    fn the_limit_of_depth_is_the_error_that_is_told() {
        for limit in [0, 1, 5, ServerOptions::MAX_JSON_DEPTH] {
            assert!(json(&received(&nested(limit), limit)).is_ok() || limit == 0, "{limit}");
            let error = json(&received(&nested(limit + 1), limit)).unwrap_err().body();
            let message = error["error"]["message"].as_str().unwrap();
            assert!(message.contains(&format!("{limit} is allowed (json-depth)")), "{message}");
        }
    }
}
