//! Reading a request's body within its limits of size, time and depth.

use crate::fault::Fault;
use crate::options::ServerOptions;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use futures_util::StreamExt;
use serde_json::Value;
use std::time::Duration;

/// How far over its limit a body is read, so that its sender gets to see the answer.
const POLITELY_READ: usize = 64 << 20;

/// Most JSON values of one body. In memory a value takes many times the bytes it is written with.
const MOST_VALUES: usize = 2_000_000;

/// The bytes of `body`.
pub(crate) async fn read(body: Body, options: &ServerOptions) -> Result<Vec<u8>, Fault> {
    timed(options.body_timeout, collect(body, options.body_limit)).await
}

async fn timed(
    limit: Duration,
    reading: impl Future<Output = Result<Vec<u8>, Fault>>,
) -> Result<Vec<u8>, Fault> {
    tokio::time::timeout(limit, reading).await.unwrap_or_else(|_| {
        let message = format!("the body took longer than {} s", limit.as_secs());
        Err(Fault::request(StatusCode::REQUEST_TIMEOUT, message))
    })
}

async fn collect(body: Body, limit: usize) -> Result<Vec<u8>, Fault> {
    let mut parts = body.into_data_stream();
    let mut bytes = Vec::new();
    let mut excess = 0;
    while let Some(part) = parts.next().await {
        let part: Bytes = part.map_err(|error| {
            Fault::request(StatusCode::BAD_REQUEST, format!("the body broke off: {error}"))
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

fn too_large(limit: usize) -> Fault {
    let message = format!("the body is larger than {limit} bytes");
    Fault::request(StatusCode::PAYLOAD_TOO_LARGE, message).with_code("body_too_large")
}

/// `bytes` as JSON of bounded depth and number of values.
pub(crate) fn json(bytes: &[u8]) -> Result<Value, Fault> {
    if values(bytes) > MOST_VALUES {
        let message = format!("the body holds more than {MOST_VALUES} JSON values");
        return Err(
            Fault::request(StatusCode::PAYLOAD_TOO_LARGE, message).with_code("body_too_large")
        );
    }
    serde_json::from_slice(bytes)
        .map_err(|error| Fault::invalid("", format!("the body is no valid JSON: {error}")))
}

/// At least the number of values that `bytes` hold as JSON: commas and openings outside strings.
fn values(bytes: &[u8]) -> usize {
    let mut count = 1;
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b',' | b'[' | b'{' => count += 1,
            b'"' => skip_string(&mut rest),
            _ => {}
        }
    }
    count
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: usize) {
        assert_eq!(values(json.as_bytes()), expected, "{json}");
    }

    #[test]
    fn values_are_counted_outside_strings() {
        check("1", 1);
        check("[1,2,3]", 4);
        check(r#"{"a": [1, 2], "b": {}}"#, 6);
        check(r#""a,b[c{\",d\\",1"#, 2);
        check(r#"",,,"#, 1);
    }

    #[test]
    fn many_small_values_are_refused_before_they_take_memory() {
        let list = format!("[{}1]", "1,".repeat(MOST_VALUES));
        assert!(json(list.as_bytes()).is_err());
        assert!(json(b"[1,1]").is_ok());
    }
}
