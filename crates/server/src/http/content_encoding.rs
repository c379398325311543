//! Compressed bodies of requests, which handlers receive decoded.
//!
//! Source: RFC 9110, 8.4 and 15.5.16. The limit of a body holds for its bytes as sent, and for
//! the decoded ones.

use crate::http::app::App;
use crate::http::body;
use crate::http::error::{ACCEPTED_CODINGS, HttpError};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use ruzstd::decoding::StreamingDecoder;
use std::io::{self, Read};

/// A way to compress a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Gzip,
    /// The format of zlib, whatever its name.
    Deflate,
    Zstd,
}

/// Decodes the body of a request, if it is compressed.
pub(crate) async fn decode(State(app): State<App>, request: Request, next: Next) -> Response {
    match decoded(&app, request).await {
        Ok(request) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

async fn decoded(app: &App, request: Request) -> Result<Request, HttpError> {
    let Some(coding) = coding(request.headers())? else { return Ok(request) };
    let (mut parts, body) = request.into_parts();
    let bytes = body::read(body, &app.options).await?;
    let limit = app.options.body_limit;
    let plain = app.prepare(limit, move || coding.decoded(&bytes, limit)).await?;
    for name in [header::CONTENT_ENCODING, header::CONTENT_LENGTH] {
        parts.headers.remove(name);
    }
    Ok(Request::from_parts(parts, Body::from(plain)))
}

/// How the body is compressed; `None` if it is not.
fn coding(headers: &HeaderMap) -> Result<Option<Coding>, HttpError> {
    let given = headers.get_all(header::CONTENT_ENCODING).iter();
    let given: Vec<_> = given.map(|value| value.to_str().unwrap_or("?").trim()).collect();
    let name = given.join(", ").to_ascii_lowercase();
    Ok(Some(match name.as_str() {
        "" | "identity" => return Ok(None),
        "gzip" | "x-gzip" => Coding::Gzip,
        "deflate" => Coding::Deflate,
        "zstd" => Coding::Zstd,
        other => {
            let message =
                format!("content-encoding must be one of {ACCEPTED_CODINGS}, not {other:?}");
            let error = HttpError::request(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
            return Err(error.with_code("unsupported_content_encoding"));
        }
    }))
}

impl Coding {
    /// What `bytes` decode to, at most `limit` bytes.
    fn decoded(self, bytes: &[u8], limit: usize) -> Result<Vec<u8>, HttpError> {
        let mut plain = Vec::new();
        let most = limit as u64 + 1;
        let read = match self {
            Self::Gzip => MultiGzDecoder::new(bytes).take(most).read_to_end(&mut plain),
            Self::Deflate => ZlibDecoder::new(bytes).take(most).read_to_end(&mut plain),
            Self::Zstd => zstd(bytes, most, &mut plain),
        };
        if plain.len() > limit {
            return Err(body::too_large(format!("the body decodes to more than {limit} bytes")));
        }
        match read {
            Ok(_) => Ok(plain),
            Err(error) => {
                Err(HttpError::invalid("", format!("the body is no valid {self:?}: {error}")))
            }
        }
    }
}

/// Adds what the frames of `bytes` decode to to `plain`, up to `most` bytes.
fn zstd(mut bytes: &[u8], most: u64, plain: &mut Vec<u8>) -> io::Result<usize> {
    while !bytes.is_empty() {
        let left = most - plain.len() as u64;
        let frame = StreamingDecoder::new(&mut bytes).map_err(io::Error::other)?;
        if frame.take(left).read_to_end(plain)? as u64 == left {
            break;
        }
    }
    Ok(plain.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn deflate(text: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        compress_to_vec(text, CompressionLevel::Fastest)
    }

    type Encode = fn(&[u8]) -> Vec<u8>;
    const ALL: [(Coding, Encode); 3] =
        [(Coding::Gzip, gzip), (Coding::Deflate, deflate), (Coding::Zstd, zstd)];

    #[test]
    fn bodies_are_decoded_up_to_the_limit_and_no_further() {
        let text = b"hello ".repeat(10_000);
        for (coding, encode) in ALL {
            let body = encode(&text);
            assert!(body.len() < text.len() / 2, "{coding:?}");
            assert_eq!(coding.decoded(&body, text.len()).unwrap(), text, "{coding:?}");
            let error = coding.decoded(&body, text.len() - 1).unwrap_err();
            assert_eq!(error.status, 413, "{coding:?}");
            assert_eq!(
                coding.decoded(&body[..body.len() / 2], text.len()).unwrap_err().status,
                400
            );
            assert_eq!(coding.decoded(b"no", 9).unwrap_err().status, 400, "{coding:?}");
        }
    }

    #[test]
    fn members_and_frames_that_follow_each_other_are_one_body() {
        for (coding, encode) in [ALL[0], ALL[2]] {
            let body = [encode(b"a"), encode(b"b")].concat();
            assert_eq!(coding.decoded(&body, 2).unwrap(), b"ab", "{coding:?}");
            assert_eq!(coding.decoded(&body, 1).unwrap_err().status, 413, "{coding:?}");
        }
    }

    fn check(given: &[&'static str], expected: Option<Option<Coding>>) {
        let mut headers = HeaderMap::new();
        for coding in given {
            headers.append(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
        }
        let found = coding(&headers);
        assert_eq!(found.as_ref().ok(), expected.as_ref(), "{given:?}");
        if let Err(error) = found {
            let response = error.into_response();
            assert_eq!(
                (response.status().as_u16(), &response.headers()["accept-encoding"]),
                (415, &HeaderValue::from_static(ACCEPTED_CODINGS))
            );
        }
    }

    #[test]
    fn other_codings_are_refused_with_the_names_of_these() {
        check(&[], Some(None));
        check(&["identity"], Some(None));
        check(&["GZIP"], Some(Some(Coding::Gzip)));
        check(&["x-gzip"], Some(Some(Coding::Gzip)));
        check(&["deflate"], Some(Some(Coding::Deflate)));
        check(&["zstd"], Some(Some(Coding::Zstd)));
        check(&["br"], None);
        check(&["gzip, gzip"], None);
        check(&["gzip", "zstd"], None);
    }
}
