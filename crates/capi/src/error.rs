//! Errors of the interface, and the status of each.

use crate::status::GannetStatus;
use calls::{CallError, OpenError};

/// Why a function gives no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CapiError {
    /// A handle is null.
    #[error("{0}: expected a handle, found null")]
    NullHandle(&'static str),
    /// A handle was freed.
    #[error("{0}: the handle was freed")]
    Freed(&'static str),
    /// A handle is one of another kind.
    #[error("{expected}: expected a handle of this kind, found one of {found}")]
    WrongKind { expected: &'static str, found: &'static str },
    /// A handle is none of this library.
    #[error("{0}: not a handle of this library")]
    Foreign(&'static str),
    /// There are as many handles as there can be.
    #[error("too many handles: free some")]
    TooManyHandles,
    /// An argument is not what was expected.
    #[error("{name}: {problem}")]
    Invalid { name: &'static str, problem: String },
    /// A buffer is too small.
    #[error("{name}: expected space for {needed}, found space for {capacity}")]
    TooSmall { name: &'static str, needed: usize, capacity: usize },
    /// Nothing came in time.
    #[error("nothing came in time")]
    TimedOut,
    /// A body has ended.
    #[error("the body has ended")]
    Ended,
    /// The program was made for another version of the interface.
    #[error(
        "expected version {expected} of the interface, found {found}: compile the program anew"
    )]
    Version { expected: u32, found: u32 },
    /// Options or a part of a call are not what was expected.
    #[error(transparent)]
    Call(CallError),
    /// A model cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A request was refused.
    #[error("{0}")]
    Request(String),
    /// The engine has ended, or was closed.
    #[error("the engine has stopped")]
    Stopped,
    /// Others use what is to be closed.
    #[error("the engine is still in use")]
    InUse,
    /// The system refuses something.
    #[error("{what}: {source}")]
    System { what: &'static str, source: std::io::Error },
}

impl CapiError {
    /// An argument that is not what was expected.
    pub fn invalid(name: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid { name, problem: problem.into() }
    }

    /// What C gets.
    pub fn status(&self) -> GannetStatus {
        match self {
            Self::NullHandle(_) | Self::Freed(_) | Self::WrongKind { .. } | Self::Foreign(_) => {
                GannetStatus::GANNET_HANDLE
            }
            Self::Invalid { .. } | Self::Call(_) => GannetStatus::GANNET_INVALID,
            Self::TooSmall { .. } => GannetStatus::GANNET_TOO_SMALL,
            Self::TimedOut => GannetStatus::GANNET_TIMEOUT,
            Self::Ended => GannetStatus::GANNET_END,
            Self::Version { .. } => GannetStatus::GANNET_VERSION,
            Self::Open(_) => GannetStatus::GANNET_MODEL,
            Self::Request(_) => GannetStatus::GANNET_REQUEST,
            Self::Stopped => GannetStatus::GANNET_STOPPED,
            Self::InUse => GannetStatus::GANNET_IN_USE,
            Self::System { .. } | Self::TooManyHandles => GannetStatus::GANNET_SYSTEM,
        }
    }
}

impl From<CallError> for CapiError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Stopped => Self::Stopped,
            other => Self::Call(other),
        }
    }
}

impl From<gannet::Error> for CapiError {
    fn from(error: gannet::Error) -> Self {
        Self::Request(error.to_string())
    }
}
