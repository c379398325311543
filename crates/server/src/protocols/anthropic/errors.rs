//! The error object of Anthropic's API.

use crate::http::refusals::ErrorObject;
use serde::Serialize;
use utoipa::ToSchema;

/// What went wrong.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AnthropicError)]
pub(crate) struct ErrorBody {
    #[serde(rename = "type")]
    #[schema(pattern = "^error$")]
    kind: &'static str,
    error: ErrorDetail,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AnthropicErrorDetail)]
struct ErrorDetail {
    /// `invalid_request_error`, `authentication_error`, `permission_error`, `not_found_error`,
    /// `request_too_large`, `rate_limit_error`, `timeout_error`, `overloaded_error` or `api_error`.
    #[serde(rename = "type")]
    kind: &'static str,
    message: String,
    /// Tokens of a prompt that the context does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    n_prompt_tokens: Option<usize>,
    /// Tokens that the context holds, answer included.
    #[serde(skip_serializing_if = "Option::is_none")]
    n_ctx: Option<usize>,
}

impl ErrorObject for ErrorBody {
    const STATUSES: &'static [(&'static str, &'static str)] = &[
        ("400", ""),
        ("401", ""),
        ("404", ""),
        ("413", ""),
        ("429", ""),
        ("500", ""),
        ("503", ""),
    ];
}

impl ErrorBody {
    /// The error of a response with this HTTP status.
    pub fn new(status: u16, message: &str) -> Self {
        let message = message.to_owned();
        let kind = kind(status);
        let error = ErrorDetail { kind, message, n_prompt_tokens: None, n_ctx: None };
        Self { kind: "error", error }
    }

    /// That of a prompt of so many tokens where the context holds `n_ctx`. Agents look for these
    /// words to know that they must shorten their history, and for the two numbers in them; a
    /// prompt must leave space for one token of the answer.
    pub fn too_long(n_prompt_tokens: usize, n_ctx: usize) -> Self {
        let most = n_ctx.saturating_sub(1);
        let mut body = Self::new(
            400,
            &format!("prompt is too long: {n_prompt_tokens} tokens > {most} maximum"),
        );
        body.error.n_prompt_tokens = Some(n_prompt_tokens);
        body.error.n_ctx = Some(n_ctx);
        body
    }
}

fn kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        504 => "timeout_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn status_names_the_error() {
        let kinds = [400, 401, 404, 405, 413, 429, 500, 503, 504].map(kind);
        let expected = [
            "invalid_request_error",
            "authentication_error",
            "not_found_error",
            "invalid_request_error",
            "request_too_large",
            "rate_limit_error",
            "api_error",
            "overloaded_error",
            "timeout_error",
        ];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn overflow_tells_both_sizes_in_words_and_numbers() {
        let expected = json!({"type": "error", "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 9 tokens > 7 maximum",
            "n_prompt_tokens": 9,
            "n_ctx": 8,
        }});
        assert_eq!(json!(ErrorBody::too_long(9, 8)), expected);
    }
}
