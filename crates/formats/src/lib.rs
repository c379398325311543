//! Checkpoints: GGUF and safetensors files become one [`Checkpoint`] with canonical tensor
//! names and one normalised [`ModelConfig`].
//!
//! Invariant: nothing here computes with weights. Every file is hostile until parsed: lengths
//! are checked before memory is taken, and every error names the file, the field or tensor,
//! what was expected and what was found.

mod bytes;
mod checkpoint;
pub mod config;
mod converted;
mod derived;
mod error;
mod experts;
pub mod families;
mod files;
mod generation;
pub mod gguf;
pub mod imatrix;
mod json;
mod layout;
pub mod names;
pub mod native;
mod pooling;
pub mod safetensors;
mod storage;
mod stream;
mod tensor;

pub use bytes::MappedBytes;
pub use checkpoint::{Checkpoint, MAX_CONFIG_BYTES, OpenOptions};
pub use config::ModelConfig;
pub use error::{Error, Result};
pub use files::ModelFiles;
pub use generation::GenerationDefaults;
pub use json::read_text;
pub use pooling::Pooling;
pub use stream::TensorStream;
pub use tensor::{TensorView, in_order};
