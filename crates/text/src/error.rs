//! The error type of this crate. Messages name the file or key, what was expected and what was
//! found.

use std::path::{Path, PathBuf};

/// An error between text and token ids.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A GGUF file or its metadata is malformed.
    #[error(transparent)]
    Format(#[from] formats::Error),
    /// A tokenizer definition is malformed or uses a feature that is not supported.
    #[error("{file}: {what}")]
    Tokenizer {
        /// File or metadata key.
        file: String,
        /// What was expected and what was found.
        what: String,
    },
    /// A GGUF vocabulary names an unknown pre-tokenizer.
    #[error(
        "tokenizer.ggml.pre: unknown pre-tokenizer type \"{found}\" (known: {known}); \
         a fallback type can be named explicitly"
    )]
    UnknownPre {
        /// The type in the file.
        found: String,
        /// All known types.
        known: String,
    },
    /// The text could not be split by the rules of the tokenizer.
    #[error("cannot tokenize the text: {0}")]
    Encode(String),
    /// A chat template does not compile, fails, or exceeds its limits.
    #[error("chat template: {0}")]
    Template(String),
    /// The model has no chat template, or none of the requested name.
    #[error("no chat template named \"{wanted}\" (available: {available})")]
    NoTemplate {
        /// The requested name.
        wanted: String,
        /// The existing names.
        available: String,
    },
}

/// `Result` with the error of this crate.
pub type Result<T> = std::result::Result<T, TextError>;

impl TextError {
    /// A malformed tokenizer definition in `file`.
    pub(crate) fn tokenizer(file: impl Into<String>, what: impl Into<String>) -> Self {
        TextError::Tokenizer { file: file.into(), what: what.into() }
    }

    /// A failed read of `path`.
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        TextError::Io { path: path.to_owned(), source }
    }
}
