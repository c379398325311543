//! Errors of loading and running a model.

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model cannot be loaded or run.
    #[error(transparent)]
    Model(#[from] models::Error),
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] backend::Error),
    /// The requested context does not fit.
    #[error("{0}")]
    Context(String),
    /// Weights that are always in memory take more than there is for weights.
    #[error(
        "expected at least {least} bytes of memory for weights, found {limit}{beside}; all weights \
         take {all}, of which embeddings, experts and layers can be read when they are needed"
    )]
    WeightsMemory {
        /// Bytes that are always in memory, and once these are known, of the experts that one
        /// token chooses in a layer and of the buffers that they are read through.
        least: usize,
        /// Bytes of all weights.
        all: usize,
        /// Bytes for weights.
        limit: usize,
        /// What the rest of the available memory is for, unless the user names the limit.
        beside: String,
    },
    /// Weights would be read when they are needed, where all are to be in memory.
    #[error("not all weights fit in memory")]
    NotWhole,
    /// An adapter that the model does not take.
    #[error("{0}")]
    Adapter(String),
    /// Choices of experts cannot be written to the file that was named.
    #[error("--route-trace: {path}: {problem}", path = path.display())]
    RouteTrace {
        /// The file.
        path: std::path::PathBuf,
        /// What was expected and found.
        problem: String,
    },
    /// The memory for states holds none, or is not available.
    #[error("{0}")]
    States(String),
    /// The kernels do not support KV blocks of this size.
    #[error("a KV block must have 16, 32, 64, 128, 256 or 512 positions, not {0}")]
    Block(usize),
    /// The model's rows cannot be rounded so.
    #[error("{0}")]
    Rounding(String),
    /// The model's layers cannot be cached in this type.
    #[error("the KV cache of this model must be {expected}, not {found}")]
    KvType {
        /// Types that the layers can have.
        expected: String,
        /// The requested type.
        found: &'static str,
    },
    /// More threads than any machine can use.
    #[error("{threads} threads are too many: at most {most}")]
    Threads {
        /// Requested threads.
        threads: usize,
        /// Maximum number of threads.
        most: usize,
    },
    /// The logits are not finite, so no token can be chosen.
    #[error(
        "the model's logits hold NaN or infinite values; run with --check to see where they arise"
    )]
    NotFinite,
    /// The hidden states are not finite, so there is no embedding.
    #[error(
        "the model's states hold NaN or infinite values; run with --check to see where they arise"
    )]
    StateNotFinite,
    /// What was asked for is computed of models that generate text, which this one does not.
    #[error("the model generates no text")]
    NoText,
    /// The model has no layers of multi-token prediction, or they are not loaded.
    #[error("the model has no layers of multi-token prediction, or fewer than are asked for")]
    NoDraftLayers,
    /// A model that cannot draft for another.
    #[error("{0}")]
    DraftModel(String),
    /// Ranks that cannot share a model, or do not understand each other.
    #[error("{0}")]
    Ranks(String),
    /// Ranks that cannot share a model, for a reason that rank 0 reports.
    #[error("rank 0 has refused the ranks, and says why")]
    RanksDiffer,
    /// Every token has a logit of minus infinity.
    #[error("no token is left to choose: logit_bias and min_tokens ban all of them")]
    NothingLeft,
}

impl Error {
    /// The text with those of its causes that it does not end with.
    pub fn with_causes(&self) -> String {
        let first = std::error::Error::source(self);
        std::iter::successors(first, |cause| cause.source()).fold(
            self.to_string(),
            |text, cause| {
                let cause = cause.to_string();
                if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
            },
        )
    }

    /// Whether a model might be loaded with more memory.
    pub fn needs_memory(&self) -> bool {
        matches!(self, Self::Context(_) | Self::States(_) | Self::WeightsMemory { .. })
    }
}
