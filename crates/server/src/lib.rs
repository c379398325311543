//! The HTTP server: wire types of each protocol, limits, streaming and shutdown, over `api`.
//!
//! Invariant: every answer of the API is JSON (or an event stream) in the protocol's own form,
//! errors included, and a client that goes away or stops reading costs the engine nothing.

mod answer;
mod anthropic;
mod app;
mod body;
mod caller;
mod choices;
mod embeddings;
mod fields;
mod flow;
mod http_error;
mod keys;
mod limits;
mod llama;
mod middleware;
mod observability;
mod ollama;
mod openai;
mod options;
mod random;
mod rate_limit_headers;
mod reload;
mod responses;
mod sampling;
mod serve;
mod shutdown;
mod sse;
mod transcript;
mod transport;
mod web;
mod wire;

pub use app::router;
#[doc(hidden)]
pub use body::{body_route, check_body};
#[doc(hidden)]
pub use keys::check_key_file;
pub use keys::{ApiKeys, KeyError};
pub use limits::RateLimits;
pub use options::ServerOptions;
pub use serve::{ServeError, ServerExit, serve, serve_until_signal};
pub use transport::{Listener, Tls, TlsError, UnixSocket};
