//! Why something with a server fails: inside as a fault of the link, outside as an error of a call.

use std::time::Duration;

/// Why a call of a tool has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// No server has the tool.
    #[error("no MCP server has a tool `{0}`")]
    UnknownTool(String),
    /// The caller has cancelled the call.
    #[error("the call of the MCP server `{0}` was cancelled")]
    Cancelled(String),
    /// The server has not answered in time.
    #[error("the MCP server `{server}` has not answered in {} s", limit.as_secs())]
    TimedOut {
        /// Its name.
        server: String,
        /// The time that it had.
        limit: Duration,
    },
    /// The server refuses the call by an error of the protocol.
    #[error("the MCP server `{server}` refuses the call: {message} (code {code})")]
    Refused {
        /// Its name.
        server: String,
        /// The number of the error.
        code: i64,
        /// Its text, printable.
        message: String,
    },
    /// The server has ended.
    #[error("the MCP server `{server}` has ended: {problem}")]
    Ended {
        /// Its name.
        server: String,
        /// How, and the last lines of its standard error, printable.
        problem: String,
    },
    /// The server cannot be reached, or what it answers is none.
    #[error("the MCP server `{server}`: {problem}")]
    Failed {
        /// Its name.
        server: String,
        /// What is wrong, printable.
        problem: String,
    },
}

/// Why a link has no answer. Texts may have text of the server and are not printable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LinkFault {
    /// The request was cancelled.
    Cancelled,
    /// No answer came in time.
    TimedOut,
    /// The server has ended, or was ended, for this reason.
    Ended(String),
    /// The server answers over HTTP, but no message, or closes the connection of the request.
    NoMessage(String),
    /// The server does not know the session any more.
    SessionLost,
    /// Anything else.
    Failed(String),
}

impl LinkFault {
    /// What is wrong, as a part of a sentence.
    pub(super) fn text(self) -> String {
        match self {
            Self::Cancelled => "cancelled".to_owned(),
            Self::TimedOut => "no answer in time".to_owned(),
            Self::SessionLost => "the session is lost again and again".to_owned(),
            Self::Ended(text) | Self::NoMessage(text) | Self::Failed(text) => text,
        }
    }
}
