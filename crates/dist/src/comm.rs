//! Collectives between ranks.

use crate::error::Error;

/// One rank of a group of ranks. Calls on one rank are serialised.
///
/// A collective (`all_reduce_sum`, `all_gather`, `broadcast`, `barrier`) is called by all ranks
/// alike.
///
/// # Errors
/// Where ranks differ in the call or its lengths, each gets an error and the group stays usable.
/// When a rank has left, calls that need it return an error that names it. After an error the
/// contents of output slices are unspecified.
pub trait Comm: Send + Sync {
    /// Number of this rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks of the group.
    fn ranks(&self) -> usize;

    /// Replaces each value by its sum over all ranks, `((r0 + r1) + r2) + …` for every element,
    /// whatever the length: equal bits on all ranks.
    fn all_reduce_sum(&self, values: &mut [f32]) -> Result<(), Error>;

    /// Concatenates the values of all ranks in the order of ranks. Ranks may contribute different
    /// numbers of values, as shards do; `all` is exactly as long as all of them.
    fn all_gather(&self, own: &[f32], all: &mut [f32]) -> Result<(), Error>;

    /// Copies the values of rank `root` to all ranks.
    fn broadcast(&self, root: usize, values: &mut [f32]) -> Result<(), Error>;

    /// Sends values to rank `to`, which must receive as many. The call may return before they are
    /// received, or wait until then: two ranks that send to each other must not both send first.
    fn send(&self, to: usize, values: &[f32]) -> Result<(), Error>;

    /// Waits for the next values that rank `from` sends.
    fn receive(&self, from: usize, values: &mut [f32]) -> Result<(), Error>;

    /// Waits until all ranks have called it.
    fn barrier(&self) -> Result<(), Error>;
}
