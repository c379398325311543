//! The HTTP server: wire types of each protocol, limits, streaming and shutdown, over `api`.
//!
//! Invariant: every answer of the API is JSON (or an event stream) in the protocol's own form,
//! errors included, and a client that disconnects or stops reading costs the engine nothing.

mod generate;
mod http;
mod protocols;
mod router;
mod serve;
mod unprefixed;

#[doc(hidden)]
pub use http::body::check_body;
#[doc(hidden)]
pub use http::keys::check_key_file;
pub use http::keys::{ApiKeys, KeyError};
pub use http::limits::RateLimits;
pub use http::models::{
    KeepAlive, LoadError, LoadModel, ModelCollection, ModelEntry, RunningModel, ServedModels,
};
pub use http::options::ServerOptions;
pub use http::transport::{Listener, Tls, TlsError, UnixSocket};
#[doc(hidden)]
pub use protocols::body_route;
pub use router::router;
pub use serve::{ServeError, serve};
