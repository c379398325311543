//! What can go wrong while loading or running a model.

/// An operating error of the engine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The model cannot be loaded or run.
    #[error(transparent)]
    Model(#[from] models::Error),
    /// The backend cannot do what is asked.
    #[error(transparent)]
    Backend(#[from] backend::Error),
    /// The context asked for does not fit.
    #[error("{0}")]
    Context(String),
    /// A size of KV blocks that the kernels do not take.
    #[error("a KV block must have 16, 32, 64, 128, 256 or 512 positions, not {0}")]
    Block(usize),
    /// More threads than a machine has use for.
    #[error("{threads} threads are too many: at most {most}")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// What is allowed.
        most: usize,
    },
    /// Logits that no token can be chosen from.
    #[error(
        "the model's logits hold NaN or infinite values; run with --check to see where they arise"
    )]
    NotFinite,
    /// States that no vector can be made of.
    #[error(
        "the model's states hold NaN or infinite values; run with --check to see where they arise"
    )]
    StateNotFinite,
    /// Every token has a logit of minus infinity.
    #[error("no token is left to choose: logit_bias and min_tokens ban all of them")]
    NothingLeft,
}
