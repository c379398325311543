//! Ranks that compute one model together: the part that each holds, and their communication.
//!
//! A [`Comm`] is one rank's end of a group. Its calls are collectives on slices: every rank of the
//! group makes the same calls in the same order, and each waits until it has its result. Sums are
//! taken in ascending order of ranks, so that all ranks get the same bits in every run.
//! [`Shard`] and [`Split`] say which part of a model a rank holds.
//!
//! Invariant: nothing here knows models, tensors or files.

mod call;
mod comm;
mod error;
mod local;
mod lock;
#[cfg(unix)]
mod mpi;
mod shard;

pub use call::are_posted;
pub use comm::{Comm, Traffic};
pub use error::Error;
pub use local::Local;
#[cfg(unix)]
pub use mpi::Mpi;
pub use shard::{Shard, Split};
