//! HTTP without a protocol: transport, middleware, keys, limits, bodies, streams, observability
//! and the page.
//!
//! Invariant: nothing here knows how a protocol names its members or writes its errors.

pub(crate) mod app;
pub(crate) mod body;
pub(crate) mod caller;
pub(crate) mod content_encoding;
pub(crate) mod described;
pub(crate) mod error;
pub(crate) mod event_schema;
pub(crate) mod fallback;
pub(crate) mod fields;
pub(crate) mod hold;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod middleware;
pub(crate) mod models;
pub(crate) mod observability;
pub(crate) mod options;
pub(crate) mod origin;
pub(crate) mod protocol;
pub(crate) mod queried_model;
pub(crate) mod random;
pub(crate) mod rate_limit_headers;
pub(crate) mod receipt_key;
pub(crate) mod refusals;
pub(crate) mod reload;
pub(crate) mod request;
pub(crate) mod shutdown;
pub(crate) mod slots;
pub(crate) mod sse;
pub(crate) mod status;
pub(crate) mod transport;
pub(crate) mod turn_records;
pub(crate) mod web;
pub(crate) mod wire;
