//! Ranks that compute one model together: what each holds of it, and what they tell each other.
//!
//! A [`Comm`] is one rank's end of a group. Its calls are collectives on slices: every rank of the
//! group makes the same calls in the same order, and each waits until it has its result. Sums are
//! taken in ascending order of ranks, so that all ranks get the same bits, in every run.
//! [`Shard`] and [`Split`] say which part of a model a rank holds.
//!
//! Invariant: nothing here knows models, tensors or files.

mod error;
mod local;
mod shard;

pub use error::Error;
pub use local::Local;
pub use shard::{Shard, Split};

/// One rank of a group of ranks. Calls of one rank take turns; nothing else is between them.
///
/// A collective (`all_reduce_sum`, `all_gather`, `broadcast`, `barrier`) must be called by all
/// ranks alike; where they differ in the call or its lengths, each gets an error and the group
/// can go on. When a rank is gone, calls that need it give an error that names it. After an error
/// the values that a call was to fill are anything.
pub trait Comm: Send + Sync {
    /// Which of the group this is, from 0.
    fn rank(&self) -> usize;

    /// How many the group has.
    fn ranks(&self) -> usize;

    /// Replaces each value by its sum over all ranks, `((r0 + r1) + r2) + …` for every element,
    /// whatever the length: equal bits on all ranks.
    fn all_reduce_sum(&self, values: &mut [f32]) -> Result<(), Error>;

    /// Puts the values of all ranks one after another in the order of ranks. They may be more on
    /// some ranks than on others, as shards are; `all` has room for exactly all of them.
    fn all_gather(&self, own: &[f32], all: &mut [f32]) -> Result<(), Error>;

    /// Gives the values of rank `root` to all.
    fn broadcast(&self, root: usize, values: &mut [f32]) -> Result<(), Error>;

    /// Gives values to rank `to`, which must ask for as many. It may return before they are
    /// taken, or wait until then: two ranks that send to each other must not both send first.
    fn send(&self, to: usize, values: &[f32]) -> Result<(), Error>;

    /// Waits for what rank `from` sends next.
    fn receive(&self, from: usize, values: &mut [f32]) -> Result<(), Error>;

    /// Waits until all ranks are here.
    fn barrier(&self) -> Result<(), Error>;
}
