//! Models: the weights of a checkpoint and one readable forward pass.
//!
//! One decoder, made of `layers`, computes every family; the configuration decides the operations
//! of its layers. Workspace and KV cache follow from what was loaded.
//!
//! Invariant: nothing here depends on text, HTTP or details of file formats, and no operation
//! depends on how its weights are stored.

mod classifier;
mod error;
mod layers;
mod load;
mod loader;
mod model;
mod pass;
pub mod placement;
mod projections;
mod ranks;
mod ropes;
mod stages;

pub use classifier::Classifier;
pub use error::Error;
pub use layers::{latent_rows, layer_caches};
pub use load::load;
pub use loader::WorkspaceLimits;
pub use model::{DraftLayers, DraftStates, Drafted, Model};
pub use projections::Projections;
pub use ranks::Ranks;
pub use stages::{StageCuts, is_of_stage, ranges};
