//! The error type of this crate.
//!
//! Invariant: no field holds a key, a user name or a password.

use std::time::Duration;

/// Why a call did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The address, the key, the certificates or the proxy cannot be used.
    #[error("{subject}: {problem}")]
    Setting {
        /// What cannot be used.
        subject: String,
        /// What was expected and found.
        problem: String,
    },
    /// The server could not be reached, or the connection ended before the answer did.
    #[error("cannot reach {url}: {problem}")]
    Connection {
        /// The requested address.
        url: String,
        /// What went wrong.
        problem: String,
    },
    /// The server answered with an error, at once or in the middle of a stream.
    #[error("{url}: {}{message}", status.map(|status| format!("{status}: ")).unwrap_or_default())]
    Refused {
        /// The requested address.
        url: String,
        /// HTTP status; none if it was that of a success, as that of a stream is.
        status: Option<u16>,
        /// `error.code`, if the server gave one.
        code: Option<String>,
        /// `error.message`, or the first line of a body that is not JSON.
        message: String,
    },
    /// The server sent what is no answer to the request.
    #[error("{url}: expected {expected}, found {found}")]
    Malformed {
        /// The requested address.
        url: String,
        /// What was expected.
        expected: String,
        /// The beginning of what was found.
        found: String,
    },
    /// An answer or a part of it is too large.
    #[error("{url}: expected {what} of at most {limit} bytes, found more")]
    TooLarge {
        /// The requested address.
        url: String,
        /// What is too large.
        what: &'static str,
        /// Its maximum size in bytes.
        limit: usize,
    },
    /// Nothing came from the server for as long as the caller allows.
    #[error("{url}: no answer and no part of one for {} s", idle.as_secs_f64())]
    Idle {
        /// The requested address.
        url: String,
        /// For how long the call waited.
        idle: Duration,
    },
    /// The caller cancelled the call.
    #[error("cancelled")]
    Cancelled,
}
