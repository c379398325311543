//! Rules for how the weights of a model are held and computed with.
//!
//! An ordered list of rules matches tensors by canonical name, layer and
//! [`TensorKind`](formats::layers::TensorKind); the first that matches decides. Built-in rules and
//! the compute mode decide what that rule leaves open.
//! [`Placement::resolve`] decides for every tensor from the headers of the files;
//! [`load`](crate::load) follows its decisions.
//!
//! Invariant: the same rules, tensors, mode and instruction set give the same placement, and no
//! setting in which prefill and decode may differ changes bits.

mod decide;
mod digest;
mod fields;
mod parse;
mod resolve;
mod rules;
mod stream;
mod tensor;
#[cfg(test)]
mod tests;

pub use digest::{decide_arithmetic, digest};
pub use rules::{MAX_BYTES, Placed, Placement, TensorMemory};
pub use stream::{leave_table_on_disk, stream_experts, stream_layers};
pub use tensor::TensorInfo;
