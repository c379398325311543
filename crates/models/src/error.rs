//! Errors of loading and running models.

/// Why a model could not be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The checkpoint lacks a tensor or its shape is wrong.
    #[error(transparent)]
    Checkpoint(#[from] formats::Error),
    /// The backend cannot take a tensor.
    #[error("{file}: tensor {tensor}: {source}")]
    Tensor {
        /// The file of the tensor.
        file: String,
        /// Name of the tensor in the file.
        tensor: String,
        /// The error of the backend.
        source: backend::Error,
    },
    /// Weights that are to be read when they are needed are in no file as they are used.
    #[error("{problem}; `{command}` writes a file that holds them")]
    NotInFile {
        /// The tensor, and the error of the backend.
        problem: Box<Error>,
        /// The command that writes a file of them.
        command: String,
    },
    /// The backend reported another error.
    #[error(transparent)]
    Backend(#[from] backend::Error),
    /// Communication between ranks failed.
    #[error(transparent)]
    Ranks(#[from] dist::Error),
    /// A configuration that is not supported.
    #[error("{0}")]
    Config(String),
    /// A file that is not a list of placement rules.
    #[error("{file}: {problem}")]
    PlacementFile {
        /// The file.
        file: String,
        /// The problem.
        problem: String,
    },
    /// A placement rule that is invalid, or impossible for this model.
    #[error("{file}: {rule}: {problem}")]
    Placement {
        /// The file of the rule.
        file: String,
        /// Number, line and conditions of the rule.
        rule: String,
        /// The field, what was expected, what was found.
        problem: String,
    },
    /// NaN or infinite values, found because checking is on.
    #[error("{stage} gave NaN or infinite values")]
    NotFinite {
        /// First row of the batch that holds such values.
        row: usize,
        /// Layer and operation where these values first appeared.
        stage: String,
    },
    /// A later stage cannot compute rows of a batch.
    #[error("{problem}")]
    Rows {
        /// The rows.
        rows: Vec<u32>,
        /// The error of the stage.
        problem: String,
    },
}

impl Error {
    /// The rows of the batch that the error is about, where it is about some, and other batches can
    /// be computed afterwards.
    pub fn rows(&self) -> Option<Vec<u32>> {
        match self {
            Self::NotFinite { row, .. } => Some(vec![*row as u32]),
            Self::Rows { rows, .. } | Self::Backend(backend::Error::Weights { rows, .. }) => {
                Some(rows.clone())
            }
            _ => None,
        }
    }
}
