//! The C interface: `libgannet.so` and `gannet.h`.
//!
//! `ffi` has the functions that C calls, and all `unsafe`: they turn pointers and lengths into
//! slices, check them, and call the code of this crate through `entry`, which lets no panic pass.
//! Handles are numbers in a table with generations (`handles`); C never gets an address of Rust's
//! but those of the bytes of a chunk.
//!
//! Invariant: whatever a handle, a length or a text holds, a function gives an error and reads
//! nothing that the caller has not passed.

mod entry;
mod error;
pub mod ffi;
mod handles;
mod objects;
mod ready_fd;
mod render;
mod sequences;
pub mod status;
