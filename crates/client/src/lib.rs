//! A blocking client of servers with OpenAI's protocol.
//!
//! - [`RemoteServer`] is the address of a server with its key. Its calls run on the caller's
//!   thread.
//! - [`RemoteServer::chat`] sends a [`ChatQuery`] and returns a [`ChatStream`], whose events are
//!   text, reasoning, tool calls, the reason of the end, and counts of tokens.
//! - [`RemoteServer::models`] lists models, and [`RemoteServer::score`] asks for the log
//!   probabilities of a text's tokens.
//! - [`Wait`] goes with every call: how long a silent server is waited for, and whether the caller
//!   cancels.
//! - [`EventParser`] parses server-sent events from any source.
//!
//! Each call has a connection of its own, which is closed when the answer is complete, when a call
//! fails, and when the caller drops the stream. Redirects are not followed. Variables such as
//! `HTTPS_PROXY` name a proxy, except for servers on this machine. Certificates are verified with
//! Mozilla's roots and with what [`RemoteServer::trusting`] adds.
//!
//! # Bounds
//!
//! An event has at most 8 MiB, an answer 64 MiB, a list of models 4 MiB, and the body of an error
//! 64 KiB. Lists in an answer are bounded in their lengths.
//!
//! Invariant: nothing here knows what tools do, models or agents. A key is in no error and no debug
//! output, and nothing that a server sends causes a panic.

mod answer;
mod chat;
mod error;
mod events;
mod hidden;
mod key;
mod models;
mod origin;
mod response;
mod route;
mod score;
mod server;
mod stream;
mod url;
mod wait;
mod wire;

pub use answer::ChatEvent;
pub use chat::{ChatQuery, QuerySampling};
pub use error::ClientError;
pub use events::{EventParser, EventTooLong, ServerSentEvent};
pub use hidden::is_hidden;
pub use models::ListedModel;
pub use score::{ScoreQuery, ScoredText, ScoredToken};
pub use server::RemoteServer;
pub use stream::ChatStream;
pub use wait::Wait;
