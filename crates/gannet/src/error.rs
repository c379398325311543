//! Why there is no engine, or no answer.

use api::ApiError;
use std::path::PathBuf;

/// What can go wrong. Messages name the file, or the field of the request, with what was expected
/// and what was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The files of the model are missing or not what they should be.
    #[error(transparent)]
    Files(#[from] formats::Error),
    /// The tokenizer or the templates of the model cannot be used.
    #[error("cannot load {}: {source}", path.display())]
    Text {
        /// The model.
        path: PathBuf,
        /// What is wrong with them.
        source: text::TextError,
    },
    /// The model cannot be computed, or not as it was asked for.
    #[error("cannot load {}: {source}", path.display())]
    Model {
        /// The model.
        path: PathBuf,
        /// Why.
        source: engine::Error,
    },
    /// The chat template that was to replace the model's own cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Template {
        /// The template.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A model cannot be quantised.
    #[error("cannot quantise {}: {source}", path.display())]
    Quantize {
        /// The model.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A request was refused, or its answer broke off.
    #[error(transparent)]
    Request(#[from] ApiError),
    /// The system has no thread to wait for a batch with.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}
