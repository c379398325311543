//! The statuses of refused requests as the OpenAPI document tells of them.

pub(crate) use crate::http::error::Problem;
use crate::http::refusals::ErrorObject;

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
