//! What a process and its children may do, which the process decides for itself and cannot undo.
//!
//! - [`Confinement`] names the folders and the network, and [`Confinement::apply`] restricts the
//!   calling process: by Landlock (files, signals), by seccomp (system calls), by giving up all
//!   capabilities, and by limits. Children inherit all of it.
//! - [`support`] says beforehand whether this machine can do so, and what is missing if not.
//! - [`environment`] is the environment that such a process is started with.
//! - [`kill_descendants`] ends all processes that the calling one has started, at any depth.
//!
//! A program executes itself again, and the new process applies its confinement before it starts a
//! second thread: Landlock and seccomp bind threads, and no other process is safe to restrict from
//! outside. Everything is Linux's; on other systems `support` and `apply` are errors, so that a
//! caller treats nothing as confined.
//!
//! # What is not prevented
//!
//! - `chmod`, `chown` to a group of the user, `utime` and extended attributes of the user's files
//!   outside: Landlock has no right for them.
//! - Names, sizes and times of files outside, and the command lines of all processes, are visible.
//! - Signals to processes of the same user, before Linux 6.12; their priorities on any.
//! - A file outside that has a hard link in a folder that may be written.
//! - A child signals the calling process, opens its descriptors and writes its files, unless
//!   [`protect_ancestors`] stands between the two.
//! - CPU time, memory and disk space are used up. The limit on processes does not bind root.
//! - With [`Network::Internet`], servers on this machine's loopback are reached as well.
//! - Descriptors 0, 1 and 2 stay as they are: the caller sees to it that they are pipes.
//! - The first environment of the calling process is readable in `/proc` by its children:
//!   [`environment`] is for the process that confines itself and not only for what it starts.
//!
//! Invariant: nothing here knows what the process does, models or HTTP. All functions are safe.

#[cfg(target_os = "linux")]
mod descendants;
#[cfg(target_os = "linux")]
mod descriptors;
#[cfg(target_os = "linux")]
mod filter;
#[cfg(target_os = "linux")]
mod landlock_rules;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod privileges;

mod apply;
mod confinement;
mod environment;
mod error;
mod folders;
mod support;
mod user;

pub use apply::{hide_process, kill_descendants, protect_ancestors};
pub use confinement::{Confinement, Network, ProcessLimits};
#[cfg(target_os = "linux")]
pub use descendants::{adopt_orphans, children};
pub use environment::{environment, git_identity};
pub use error::{ConfineError, Unsupported};
pub use support::{Support, support};
pub use user::UserFolders;
