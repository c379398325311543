//! The scheduler: which rows of which sequences the next step computes, and which KV blocks they
//! own.
//!
//! Pure and deterministic: integers in, integers out; the same calls give the same plans. Time is
//! counted in steps; tenants and priorities are numbers.
//!
//! - [`BlockPool`] counts the holders of KV blocks and keeps blocks without holders as prefix
//!   cache.
//! - [`Scheduler`] admits sequences, finds the longest prefix of each in the cache, to the token,
//!   mixes decoding with prompt chunks in every step, and preempts the newest sequence when blocks
//!   run out.
//!
//! Invariant: nothing here knows tensors, threads, clocks or text.

mod children;
mod name;
mod pool;
mod scheduler;
mod sequence;
mod slot;
mod waiting;

pub use name::Name;
pub use pool::{BlockCounts, BlockPool};
pub use scheduler::{Planned, Scheduler, SchedulerLimits, View};
pub use sequence::{BlockCopy, NewSequence, PromptOutput};
pub use slot::{Slot, SlotTable};
