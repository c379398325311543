//! What a refused request gets, as the document tells it.

use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::openapi::{ContentBuilder, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

/// An error.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Refusal {
    /// What is wrong.
    pub error: String,
}

const STATUSES: [(&str, &str); 7] = [
    ("400", "The request cannot be"),
    ("401", "The key is missing or wrong"),
    ("404", "There is no such thing"),
    ("413", "The request is too large"),
    ("429", "Too many requests are waiting"),
    ("500", "The server is at fault"),
    ("503", "The server takes no requests"),
];

impl IntoResponses for Refusal {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let one = |(status, what): (&str, &str)| {
            let content = ContentBuilder::new().schema(Some(Self::schema())).build();
            let response =
                ResponseBuilder::new().description(what).content("application/json", content);
            (status.to_owned(), RefOr::T(response.build()))
        };
        STATUSES.into_iter().map(one).collect()
    }
}
