//! Checkpoints: GGUF and safetensors files become one [`Checkpoint`] with canonical tensor
//! names and one normalised [`ModelConfig`].
//!
//! Invariant: nothing here computes with weights. Every file is hostile until parsed: lengths
//! are checked before memory is taken, and every error names the file, the field or tensor,
//! what was expected and what was found.

pub mod config;
