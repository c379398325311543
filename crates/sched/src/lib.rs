//! The scheduler: which rows of which sequences the next step computes, and which KV blocks and
//! states they own.
//!
//! Pure and deterministic: integers in, integers out; the same calls give the same plans. Time is
//! counted in steps; tenants and priorities are numbers.
//!
//! - [`BlockPool`] counts the holders of KV blocks and keeps blocks without holders as prefix
//!   cache.
//! - A [`Group`] of rows of equal window has a pool of its own, and a sequence a block table for
//!   each. States, which cannot be cut, have slots that are live or snapshots.
//! - [`Scheduler`] admits sequences, finds the longest prefix of each in the cache, to the token,
//!   mixes decoding with prompt chunks in every step, and preempts the newest sequence when blocks
//!   run out.
//!
//! Invariant: nothing here knows tensors, threads, clocks or text.

mod blocks;
mod cache;
mod chain;
mod children;
mod evicted;
mod group;
mod led;
mod lookup;
mod outside;
mod pool;
mod restore;
mod restore_plan;
mod resume;
mod scheduler;
mod sequence;
mod slot;
mod state_pool;
mod waiting;

pub use cache::Unreached;
pub use group::Group;
pub use lookup::CacheLookup;
pub use pool::{BlockCounts, BlockPool};
pub use restore::RestorePlace;
pub use restore_plan::{RestorePlan, StoredParts};
pub use scheduler::{Planned, Scheduler, SchedulerLimits, StateSave, View};
pub use sequence::{BlockCopy, NewSequence, PromptOutput};
pub use slot::{Slot, SlotTable};
pub use state_pool::{StateCopy, StateCounts};
