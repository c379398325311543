//! Kernels: functions over slices, and the table of storage types of weights.
//!
//! Every kernel has one body, written over sixteen f32 lanes (`lanes`), and thin shells that
//! compile it for each instruction set; [`Isa`] chooses at run time. The order in which an
//! output element is accumulated is part of a kernel's contract: it never depends on how many
//! rows are computed together, on tiles or on threads.
//!
//! Features, both on by default: `every-isa` builds the kernels for every instruction set, and not
//! only for the best one of the machine that compiles; `quantisers` builds the functions that store
//! values in quant blocks. Neither changes a bit of what the others compute.
//!
//! Invariant: no module knows files, names of tensors, or models.
#![cfg_attr(not(all(feature = "every-isa", feature = "quantisers")), allow(dead_code))]

#[cfg(target_endian = "big")]
compile_error!("checkpoints hold little-endian values, which kernels read as they are stored");

/// Version of the arithmetic: raised whenever a kernel, or the order in which models call kernels,
/// gives other bits than before, so that stored numbers are not mixed with new ones.
pub const ARITHMETIC: u32 = 3;

mod arithmetic;
pub mod attention;
pub mod compress;
pub mod conv;
pub mod delta;
pub mod elementwise;
mod features;
mod fingerprint;
pub mod hyper;
mod isa;
pub mod kv;
mod lanes;
pub mod layout;
pub mod low_rank;
mod math;
pub mod probe;
pub mod quant;
pub mod rope;
pub mod routing;
pub mod sampling;
pub mod select;

pub use arithmetic::Arithmetic;
pub use fingerprint::fingerprint;
pub use isa::{ISA_VARIABLE, Isa};
