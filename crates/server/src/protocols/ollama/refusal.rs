//! The object of errors.

use crate::http::refusals::ErrorObject;
use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// An error.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Refusal {
    /// What is wrong.
    error: String,
}

impl ErrorObject for Refusal {
    const STATUSES: &'static [(&'static str, &'static str)] = &[
        ("400", "The request cannot be"),
        ("401", "The key is missing or wrong"),
        ("404", "There is no such thing"),
        ("413", "The request is too large"),
        ("429", "Too many requests are waiting"),
        ("500", "The server is at fault"),
        ("503", "The server takes no requests"),
    ];

    fn described() -> RefOr<Schema> {
        Self::schema()
    }
}
