//! Writes model files: quantised checkpoints, the importance of columns that guides quantisation,
//! packed weights, spliced models, and checkpoints of random weights.
//!
//! Invariant: a file appears under its name complete or not at all, and the crate prints nothing:
//! messages and progress are reported through [`WorkProgress`].

pub mod imatrix;
mod output;
mod pack;
mod progress;
pub mod quantize;
mod splice;
pub mod synth;
mod tensor_list;
mod types;

pub use pack::{PackOptions, PackSummary, pack};
pub use progress::WorkProgress;
pub use quantize::{Comparison, Mixture, Override, QuantizeOptions, Quantized, quantize};
pub use splice::{LayerRange, Splice, SpliceSelection};
pub use synth::MatrixTypes;
pub use types::writable_type;
