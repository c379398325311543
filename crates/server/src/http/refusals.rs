//! Refused requests in the OpenAPI document: one response for each status.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder, Schema};
use utoipa::{IntoResponses, ToSchema};

/// The error object of a protocol.
pub(crate) trait ErrorObject: ToSchema {
    /// The statuses of responses with this object, and the meaning of each.
    const STATUSES: &'static [(&'static str, &'static str)];

    /// How responses state its schema.
    fn described() -> RefOr<Schema> {
        Ref::from_schema_name(Self::name()).into()
    }
}

/// The responses to refused requests, with the error object `E`.
pub(crate) struct Refusals<E>(PhantomData<E>);

impl<E: ErrorObject> IntoResponses for Refusals<E> {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let response = |&(status, description): &(&str, &str)| {
            let content = ContentBuilder::new().schema(Some(E::described())).build();
            let response = ResponseBuilder::new().description(description);
            (status.to_owned(), RefOr::T(response.content("application/json", content).build()))
        };
        E::STATUSES.iter().map(response).collect()
    }
}
