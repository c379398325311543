//! Models: the weights of a checkpoint and one readable forward pass.
//!
//! One decoder, made of `layers`, computes every family; the configuration says which operations
//! its layers have. What a model needs of memory and what its cache looks like is derived from
//! what it loaded.
//!
//! Invariant: nothing here knows text, HTTP or file formats' details; a layer owns the type of
//! its weights and no other code asks for it.

mod layers;
mod loader;
pub mod placement;
mod ranks;

pub use layers::{expanded_cache, layer_cache};
pub use loader::{WorkspaceLimits, load};
pub use ranks::Ranks;

use backend::{Backend, Batch, Buffer, LayerCache};

/// Why a model could not be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The checkpoint lacks a tensor or its shape is wrong.
    #[error(transparent)]
    Checkpoint(#[from] formats::Error),
    /// The backend cannot take a tensor.
    #[error("{file}: tensor {tensor}: {source}")]
    Tensor {
        /// The file the tensor lies in.
        file: String,
        /// Its name there.
        tensor: String,
        /// What the backend says.
        source: backend::Error,
    },
    /// The backend refused something else.
    #[error(transparent)]
    Backend(#[from] backend::Error),
    /// Ranks that share the model do not come together.
    #[error(transparent)]
    Ranks(#[from] dist::Error),
    /// A value of the configuration that the code cannot follow.
    #[error("{0}")]
    Config(String),
    /// A file that is no list of rules of placement.
    #[error("{file}: {problem}")]
    PlacementFile {
        /// The file.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A rule of placement that cannot be read, or not be followed for this model.
    #[error("{file}: {rule}: {problem}")]
    Placement {
        /// The file it stands in.
        file: String,
        /// Its number, line and what it matches.
        rule: String,
        /// The field, what was expected, what was found.
        problem: String,
    },
    /// NaN or infinite values, found because checking is on.
    #[error("{stage} gave NaN or infinite values")]
    NotFinite {
        /// First row of the batch that holds them.
        row: usize,
        /// Layer and operation where they first appeared.
        stage: String,
    },
}

/// A loaded model. Its weights live in the backend it was loaded into.
pub trait Model: Send {
    /// What each layer that this rank holds keeps in the KV cache for a position.
    fn cache(&self) -> Vec<LayerCache>;

    /// Where the states of the last batch lie after the last norm, one row for each of its
    /// `state_rows()`, until the next batch.
    fn states(&self) -> Buffer;

    /// Computes the batch and stores its keys and values. Returns the buffer of logits, one row
    /// for each of `batch.logit_rows()`. With `check`, values that are not finite are an error
    /// that names where they arose. Where ranks share the model, each of them computes the batch,
    /// and all get the same logits and states.
    fn forward(
        &self,
        backend: &mut dyn Backend,
        batch: &Batch,
        check: bool,
    ) -> Result<Buffer, Error>;
}
