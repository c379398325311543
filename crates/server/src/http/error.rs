//! Errors of requests, with their HTTP status.
//!
//! Source: OpenAI API reference, "Error codes". The two context numbers are an extension that other
//! local servers share.

use api::ApiError;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::Field;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Display;
use utoipa::ToSchema;

/// What a body may be compressed with, as answers name it.
pub(crate) const ACCEPTED_CODINGS: &str = "gzip, deflate, zstd";

/// A refused or failed request.
#[derive(Clone, Debug)]
pub(crate) struct HttpError {
    /// The HTTP status.
    pub status: StatusCode,
    kind: &'static str,
    /// What is wrong.
    pub message: String,
    param: Option<Param>,
    code: Option<&'static str>,
    /// Tokens of a prompt that is too long, and of the context.
    pub lengths: Option<[usize; 2]>,
}

/// The member of a request that is at fault.
#[derive(Clone, Debug)]
enum Param {
    /// By its path.
    Named(String),
    /// By its field, whose name depends on the protocol.
    Field(Field),
}

/// Seconds after which a client refused for overload may try again.
const RETRY_AFTER: &str = "1";

impl HttpError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, kind, message, param: None, code: None, lengths: None }
    }

    /// 400: the member `param` of the request is invalid.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        let param: String = param.into();
        let param = (!param.is_empty()).then_some(Param::Named(param));
        Self { param, ..Self::request(StatusCode::BAD_REQUEST, message) }
    }

    /// 400: the member `param` of the request is invalid. The message is `problem` behind the
    /// member's path.
    pub fn member(param: &str, problem: impl Display) -> Self {
        Self::invalid(param, format!("{param} {problem}"))
    }

    /// 400: the value at `path` is invalid. The message is `problem` behind the path and a colon.
    pub fn at(path: &str, problem: impl Display) -> Self {
        Self::invalid(path, format!("{path}: {problem}"))
    }

    /// The request is at fault in a way that no single field names.
    pub fn request(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", message)
    }

    /// The server is at fault.
    pub fn server(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, "server_error", message)
    }

    /// 501: the server or its model cannot do this, whatever the request.
    pub fn not_supported(message: impl Into<String>) -> Self {
        Self::request(StatusCode::NOT_IMPLEMENTED, message)
    }

    /// 500: the server is at fault, in a way that is none of the client's business.
    pub fn internal() -> Self {
        Self::server(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
    }

    /// 429: the caller takes more than it may.
    pub fn rate_limited(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message)
    }

    /// 401: the caller is unknown.
    pub fn unauthorized() -> Self {
        let message = "the API key is missing or wrong";
        Self::request(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key")
    }

    /// 503: no new work is taken.
    pub fn shutting_down() -> Self {
        Self::server(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down")
    }

    /// The same error with a machine-readable code.
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// What `error` means to the client whose prompt came in the field `prompt`.
    pub fn of(error: ApiError, prompt: &str) -> Self {
        let message = error.to_string();
        match error {
            ApiError::ContextLength { prompt_tokens, context_length }
            | ApiError::FarBeyondContext { least_tokens: prompt_tokens, context_length } => {
                let lengths = Some([prompt_tokens, context_length]);
                let error = Self::invalid(prompt, message).with_code("context_length_exceeded");
                Self { lengths, ..error }
            }
            ApiError::Invalid { field: Field::Prompt, .. } => Self::invalid(prompt, message),
            ApiError::Invalid { field, .. } => {
                Self { param: Some(Param::Field(field)), ..Self::invalid("", message) }
            }
            ApiError::Template(_) => Self::invalid(prompt, message).with_code("template_error"),
            ApiError::QueueFull(_) => Self::rate_limited(message).with_code("queue_full"),
            ApiError::TimedOut(_) => {
                Self::server(StatusCode::GATEWAY_TIMEOUT, message).with_code("request_timeout")
            }
            ApiError::Stopped => Self::server(StatusCode::SERVICE_UNAVAILABLE, message),
            ApiError::Text(_) | ApiError::Engine(_) => {
                Self::server(StatusCode::INTERNAL_SERVER_ERROR, message)
            }
        }
    }

    /// The same error with its field under the name that `name` has for it.
    pub fn renamed(&self, name: impl FnOnce(&Field) -> &'static str) -> Self {
        let mut error = self.clone();
        let Some(Param::Field(field)) = &self.param else { return error };
        let (own, name) = (self::field(field), name(field));
        if own != name {
            error.message = format!("{name}: {}", self.message);
            error.param = Some(Param::Named(name.to_owned()));
        }
        error
    }

    fn param(&self) -> Option<&str> {
        Some(match self.param.as_ref()? {
            Param::Named(name) => name,
            Param::Field(field) => self::field(field),
        })
    }

    /// The JSON of the error where no protocol has another form for it, which is OpenAI's.
    pub fn body(&self) -> Value {
        let [n_prompt_tokens, n_ctx] = self.lengths.map_or([None; 2], |both| both.map(Some));
        let Self { kind, message, code, .. } = self.clone();
        let param = self.param().map(str::to_owned);
        json!(Problem { error: Detail { message, kind, param, code, n_prompt_tokens, n_ctx } })
    }
}

/// An error.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    error: Detail,
}

/// What went wrong.
#[derive(Debug, Serialize, ToSchema)]
struct Detail {
    message: String,
    /// `invalid_request_error`, `rate_limit_error` or `server_error`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The member of the request that is at fault.
    param: Option<String>,
    code: Option<&'static str>,
    /// Tokens of a prompt that is too long; an extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    n_prompt_tokens: Option<usize>,
    /// Tokens that the context holds; an extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    n_ctx: Option<usize>,
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.body())).into_response();
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            let seconds = HeaderValue::from_static(RETRY_AFTER);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        if self.status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            let accepted = HeaderValue::from_static(ACCEPTED_CODINGS);
            response.headers_mut().insert(header::ACCEPT_ENCODING, accepted);
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// The name of `field` in most protocols.
pub(crate) fn field(field: &Field) -> &'static str {
    match field {
        Field::Prompt => "prompt",
        Field::Constraint => "response_format",
        Field::Parameter(name) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: ApiError, status: u16, expected: &Value) {
        let error = HttpError::of(error, "messages");
        assert_eq!(error.status.as_u16(), status);
        assert_eq!(error.body(), *expected);
    }

    #[test]
    fn context_overflow_names_both_sizes() {
        check(
            ApiError::ContextLength { prompt_tokens: 9, context_length: 8 },
            400,
            &json!({"error": {
                "message": "a prompt of 9 tokens exceeds the available context size of 8 tokens",
                "type": "invalid_request_error",
                "param": "messages",
                "code": "context_length_exceeded",
                "n_prompt_tokens": 9,
                "n_ctx": 8,
            }}),
        );
    }

    #[test]
    fn full_queue_is_a_rate_limit_with_a_time_to_wait() {
        let response = HttpError::of(ApiError::QueueFull(4), "prompt").into_response();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()[header::RETRY_AFTER], RETRY_AFTER);
    }

    #[test]
    fn engine_failure_is_a_server_error() {
        check(
            ApiError::Engine("layer 3: not a number".into()),
            500,
            &json!({"error": {
                "message": "layer 3: not a number",
                "type": "server_error",
                "param": null,
                "code": null,
            }}),
        );
    }
}
