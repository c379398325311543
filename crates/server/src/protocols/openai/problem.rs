//! Errors as the OpenAPI document tells of them: the form of [`HttpError::body`].
//!
//! [`HttpError::body`]: crate::http::error::Fault::body

use api::Field;
use std::borrow::Cow;
use utoipa::{IntoResponses, ToSchema};

/// What OpenAI's protocols call a field, in the member `param` of errors. The errors of the other
/// protocols have no such member.
pub(crate) fn name(field: &Field) -> Cow<'static, str> {
    match field {
        Field::Prompt => "prompt".into(),
        Field::Constraint => "response_format".into(),
        Field::Parameter(name) => (*name).into(),
    }
}

/// An error.
#[derive(Debug, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
#[allow(dead_code, reason = "describes what faults write")]
pub(crate) struct Problem {
    error: Detail,
}

/// What went wrong.
#[derive(Debug, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
#[allow(dead_code, reason = "describes what faults write")]
pub(crate) struct Detail {
    message: String,
    /// `invalid_request_error`, `rate_limit_error` or `server_error`.
    #[cfg_attr(test, serde(rename = "type"))]
    #[schema(rename = "type")]
    kind: String,
    /// The member of the request that is at fault.
    param: Option<String>,
    code: Option<String>,
    /// Tokens of a prompt that is too long; an extension.
    n_prompt_tokens: Option<usize>,
    /// Tokens that the context holds; an extension.
    n_ctx: Option<usize>,
}

/// What a request for an answer may be refused with.
#[derive(Debug, IntoResponses)]
#[allow(dead_code, reason = "describes what faults write")]
pub(crate) enum Refusals {
    /// The request cannot be.
    #[response(status = 400)]
    Invalid(Problem),
    /// The key is missing or wrong.
    #[response(status = 401)]
    Unauthorized(Problem),
    /// What the key may not do.
    #[response(status = 403)]
    Forbidden(Problem),
    /// There is no such thing.
    #[response(status = 404)]
    NotFound(Problem),
    /// The body took too long.
    #[response(status = 408)]
    Late(Problem),
    /// The body is too large.
    #[response(status = 413)]
    TooLarge(Problem),
    /// Too many requests wait, or the key's limit is reached; `Retry-After` says when to come back.
    #[response(status = 429)]
    TooMany(Problem),
    /// The computation broke.
    #[response(status = 500)]
    Broken(Problem),
    /// The server is shutting down.
    #[response(status = 503)]
    Closing(Problem),
    /// The answer took too long.
    #[response(status = 504)]
    TimedOut(Problem),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::error::HttpError;
    use api::ApiError;

    #[test]
    fn faults_are_as_the_document_says() {
        let long = ApiError::ContextLength { prompt_tokens: 9, context_length: 8 };
        for error in [long, ApiError::Stopped, ApiError::QueueFull(3)] {
            let body = HttpError::of(error, "input").body();
            let problem: Problem = serde_json::from_value(body).unwrap();
            assert!(!problem.error.message.is_empty());
        }
    }
}
