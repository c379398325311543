//! Errors as the OpenAPI document tells of them: the form of [`Fault::body`].
//!
//! [`Fault::body`]: crate::fault::Fault::body

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;
    use api::ApiError;

    #[test]
    fn faults_are_as_the_document_says() {
        let long = ApiError::ContextLength { prompt_tokens: 9, context_length: 8 };
        for error in [long, ApiError::Stopped, ApiError::QueueFull(3)] {
            let body = Fault::of(error, "input").body();
            let problem: Problem = serde_json::from_value(body).unwrap();
            assert!(!problem.error.message.is_empty());
        }
    }
}
