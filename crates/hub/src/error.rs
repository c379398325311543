//! The error type of this crate.

use std::io;
use std::path::{Path, PathBuf};

/// Why a model could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text does not name a model on a hub.
    #[error("{text}: expected owner/name, owner/name@revision or owner/name:FILE.gguf: {problem}")]
    Reference {
        /// What was given.
        text: String,
        /// The problem.
        problem: String,
    },
    /// A setting of the environment.
    #[error("{name}: {problem}")]
    Setting {
        /// The variable.
        name: &'static str,
        /// What was expected and found.
        problem: String,
    },
    /// The cache could not be read or written.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// `read`, `write`, `create`, `lock`, `link`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The hub could not be reached, or the connection failed.
    #[error("cannot reach {url}: {problem}")]
    Network {
        /// The requested address.
        url: String,
        /// What went wrong.
        problem: String,
    },
    /// The hub answered with an error.
    #[error("{url}: {problem}")]
    Refused {
        /// The requested address.
        url: String,
        /// HTTP status.
        status: u16,
        /// Explanation of the status.
        problem: String,
    },
    /// The hub sent an unusable response.
    #[error("{url}: {problem}")]
    Answer {
        /// The requested address.
        url: String,
        /// What was expected and found.
        problem: String,
    },
    /// The repository lacks the requested files.
    #[error("{repository}: {problem}")]
    Contents {
        /// `owner/name`.
        repository: String,
        /// What was expected and found.
        problem: String,
    },
    /// Downloads are forbidden and the cache lacks the model.
    #[error("{model} is incomplete in {}, and HF_HUB_OFFLINE forbids to download it", cache.display())]
    NotCached {
        /// The model asked for.
        model: String,
        /// The cache folder.
        cache: PathBuf,
    },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    pub(crate) fn answer(url: &str, problem: impl Into<String>) -> Self {
        Self::Answer { url: url.to_owned(), problem: problem.into() }
    }

    pub(crate) fn network(url: &str, problem: impl ToString) -> Self {
        Self::Network { url: url.to_owned(), problem: problem.to_string() }
    }

    /// Whether another attempt, or the cache, may succeed.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Network { .. } => true,
            Self::Refused { status, .. } => *status >= 500 || matches!(status, 408 | 429),
            _ => false,
        }
    }
}
