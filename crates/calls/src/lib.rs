//! Calls in process: the routes of the HTTP server over one loaded model, without a socket.
//!
//! A [`LocalServer`] is a loaded model with the server's router. [`LocalServer::call`] sends a
//! request to a route and returns a [`Call`], which gives the body of the response: whole, or one
//! chunk for each event of a stream. Requests, answers and errors are those of the server, so that
//! a route or a parameter that HTTP gets is there as well.
//!
//! ```
//! use calls::{LocalServer, NextChunk, OpenOptions};
//! use std::time::Duration;
//!
//! let options = OpenOptions::from_json(br#"{"model": "builtin", "threads": 1}"#)?;
//! let server = LocalServer::open(&options)?;
//! let body = r#"{"messages": [{"role": "user", "content": "Hello!"}], "stream": true}"#;
//! let call = server.call("POST", "/v1/chat/completions", body.into())?;
//! while let NextChunk::Chunk(event) = call.next(None) {
//!     println!("{}", String::from_utf8_lossy(&event));
//! }
//! assert_eq!(call.status(), Some(200));
//! assert!(server.close(Duration::from_secs(10)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariant: the crate has no wire types; it knows the paths of routes as little as their bodies.

mod call;
mod chunks;
mod error;
mod local_server;
mod locate;
mod lock;
mod options;
mod sequences;
mod settings;
mod users;

pub use call::{Call, NextChunk};
pub use error::{CallError, OpenError};
pub use local_server::LocalServer;
pub use lock::lock_all;
pub use options::OpenOptions;
pub use sequences::SequenceOptions;
pub use users::{ServerUser, ServerUsers};
