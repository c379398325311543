//! The HTTP server: wire types of each protocol, limits, streaming and shutdown, over `api`.
//!
//! Invariant: every answer to a client is JSON (or an event stream) in the protocol's own form,
//! errors included, and a client that goes away or stops reading costs the engine nothing.

mod answer;
mod app;
mod body;
mod choices;
mod fault;
mod fields;
mod flow;
mod guard;
mod llama;
mod ollama;
mod openai;
mod options;
mod random;
mod serve;
mod shutdown;
mod sse;
mod watch;
mod wire;

pub use app::router;
pub use options::ServerOptions;
pub use serve::{Ended, ServeError, serve, serve_until_signal};
