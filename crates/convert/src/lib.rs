//! Model files from other model files: quantisation, the importance that steers it, and
//! checkpoints of random weights.
//!
//! Invariant: a file appears under its name whole or not at all, and nothing is printed: what a
//! person should see goes through [`WorkProgress`].

pub mod imatrix;
mod progress;
pub mod quantize;
pub mod synth;
mod types;

pub use progress::{Interrupted, WorkProgress};
pub use quantize::{Mixture, Override, QuantizeOptions, Quantized, Target, quantize};
pub use types::writable_type;
