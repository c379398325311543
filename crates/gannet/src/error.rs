//! Errors of engines and answers.

use api::ApiError;
use std::path::PathBuf;

/// An error of an engine or an answer. Messages name the file or the field of the request, what was
/// expected and what was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of the model is missing or malformed.
    #[error(transparent)]
    Files(#[from] formats::Error),
    /// The tokenizer or the templates of the model cannot be used.
    #[error("cannot load {}: {source}", path.display())]
    Text {
        /// The model.
        path: PathBuf,
        /// The error of the tokenizer or template.
        source: text::TextError,
    },
    /// The model cannot be computed with these options.
    #[error("cannot load {}: {source}", path.display())]
    Model {
        /// The model.
        path: PathBuf,
        /// The error of the engine.
        source: engine::Error,
    },
    /// The draft model has another vocabulary than the model.
    #[error("{}: cannot draft for a model with another vocabulary: {difference}", path.display())]
    DraftVocabulary {
        /// The draft model.
        path: PathBuf,
        /// The first difference.
        difference: String,
    },
    /// The replacement chat template cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Template {
        /// The template.
        path: PathBuf,
        /// The error of the template.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There are more adapters than may be held, or one has no printable name.
    #[error("{}: {source}", path.display())]
    Adapters {
        /// The model.
        path: PathBuf,
        /// The error of the adapters.
        source: api::AdapterError,
    },
    /// The folder of stored prefixes cannot be used.
    #[error("cannot use the cache on disk: {0}")]
    Store(#[from] store::StoreError),
    /// Prefixes cannot be taken out of their folder.
    #[error("cannot take prefixes out: {0}")]
    Prefixes(&'static str),
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A model cannot be quantised.
    #[error("cannot quantise {}: {source}", path.display())]
    Quantize {
        /// The model.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A request was rejected, or its answer broke off.
    #[error(transparent)]
    Request(#[from] ApiError),
    /// The thread that reads answers could not be started, or what waits for them.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}
