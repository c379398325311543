//! What a refused request gets.

use serde::Serialize;
use utoipa::{IntoResponses, ToSchema};

/// An error.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OllamaError)]
pub(crate) struct Refusal {
    /// What is wrong.
    pub error: String,
}

/// What a request may be refused with, as the document tells it.
#[derive(Debug, IntoResponses)]
#[allow(dead_code, reason = "describes what faults write")]
pub(crate) enum OllamaRefusals {
    /// The request cannot be.
    #[response(status = 400)]
    Invalid(Refusal),
    /// The key is missing or wrong.
    #[response(status = 401)]
    Unauthorized(Refusal),
    /// There is no such thing.
    #[response(status = 404)]
    NotFound(Refusal),
    /// The request is too large.
    #[response(status = 413)]
    TooLarge(Refusal),
    /// Too many requests are waiting.
    #[response(status = 429)]
    TooMany(Refusal),
    /// The server is at fault.
    #[response(status = 500)]
    Broken(Refusal),
    /// The server takes no requests.
    #[response(status = 503)]
    Closing(Refusal),
}
