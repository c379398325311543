//! Which sequences compute what in the next step, and which KV blocks they own.
//!
//! Pure and deterministic: integers in, integers out; the same calls give the same plans.
//!
//! Policy so far: first come, first served. A sequence is admitted when the blocks for its whole
//! length are free, and keeps them until it ends, so that what was admitted always finishes.
//!
//! Invariant: nothing here knows tensors, threads, clocks or text.

mod pool;
mod scheduler;

pub use pool::BlockPool;
pub use scheduler::{Limits, Planned, Scheduler, SequenceId};
