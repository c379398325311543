//! Errors of opening a model and of calls that no route has seen.

use std::io;

/// Why a call was not made. Errors of requests are responses, as over HTTP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Options or a part of a request are not what was expected.
    #[error("{field}: {problem}")]
    Invalid {
        /// The option or the part of the request.
        field: String,
        /// What was expected and what was found.
        problem: String,
    },
    /// An option is not known.
    #[error("unknown option {key:?}{}", hint(nearest.as_deref()))]
    UnknownOption {
        /// The option.
        key: String,
        /// The known option whose name is nearest, if one is near.
        nearest: Option<&'static str>,
    },
    /// The server is closed, or its engine has ended.
    #[error("the engine has stopped")]
    Stopped,
}

/// Why a model was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The model is neither on this machine nor the name of one on a hub.
    #[error("{0}: no such file or folder")]
    NotFound(String),
    /// The hub does not provide the model.
    #[error("{model}: no such file or folder, and the hub does not provide it: {source}")]
    Hub {
        /// The model.
        model: String,
        /// The error of the hub.
        source: hub::Error,
    },
    /// The built-in model cannot be unpacked.
    #[error("cannot unpack the built-in model: {0}")]
    Unpack(io::Error),
    /// The model cannot be loaded.
    #[error(transparent)]
    Load(Box<gannet::Error>),
    /// The threads of calls cannot be started.
    #[error("cannot start the threads of calls: {0}")]
    Threads(io::Error),
}

impl From<gannet::Error> for OpenError {
    fn from(error: gannet::Error) -> Self {
        Self::Load(Box::new(error))
    }
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest:?}?"))
}
