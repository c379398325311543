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

/// `bytes` as JSON of bounded depth.
pub(crate) fn json(bytes: &[u8]) -> Result<Value, Fault> {
    serde_json::from_slice(bytes)
        .map_err(|error| Fault::invalid("", format!("the body is no valid JSON: {error}")))
}
