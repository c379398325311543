//! Small records in one file, which survive a restart and a crash: tables of keys and values.
//!
//! - [`StateDir`] holds the file of a folder, which one process uses at a time.
//! - A [`Change`] adds, replaces or removes a record. Changes are committed in groups on a thread.
//! - A [`Commit`] is what a caller waits for that must not answer before its changes are on disk.
//!
//! The file is read once, by the stores that keep its records in memory; from then on it is
//! written. If the disk fails, changes wait in memory and are written when it works again: no error
//! of the disk reaches a caller.
//!
//! Invariant: nothing here knows what records mean, HTTP or models.

mod file;
mod group;
mod state;

pub use file::StateError;
pub use group::Change;
pub use state::{Commit, StateDir};
