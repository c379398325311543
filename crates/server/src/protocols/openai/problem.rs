//! Errors as the OpenAPI document tells of them: the form of [`HttpError::body`].
//!
//! [`HttpError::body`]: crate::http::error::HttpError::body

use crate::http::refusals::ErrorObject;
use utoipa::ToSchema;

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

impl ErrorObject for Problem {
    const STATUSES: &'static [(&'static str, &'static str)] = &[
        ("400", "The request cannot be."),
        ("401", "The key is missing or wrong."),
        ("403", "What the key may not do."),
        ("404", "There is no such thing."),
        ("408", "The body took too long."),
        ("413", "The body is too large."),
        (
            "429",
            "Too many requests wait, or the key's limit is reached; `Retry-After` says when to come back.",
        ),
        ("500", "The computation broke."),
        ("503", "The server is shutting down."),
        ("504", "The answer took too long."),
    ];
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
