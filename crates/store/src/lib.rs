//! The store: cached rows and states on disk, found by name after a restart, an eviction, or in
//! another process.
//!
//! - An *extent* is a file of 1 to 64 consecutive blocks of a chain, or of one state ([`Header`]).
//! - A [`Keyspace`] is what lies below one root: everything computed with the same bits.
//! - A [`StoreKey`] seals extents: they are encrypted, and found with the same key only.
//! - [`Store`] holds the index of a folder, reads and writes extents on threads of its own, and
//!   keeps the folder within its budget. Several processes may share a folder.
//!
//! Whatever cannot be read, or is not what its name says, is not found: no error of the disk
//! reaches a request, and no content is returned whose checksum is wrong.
//!
//! Invariant: nothing here knows models, tensors, HTTP or what tokens mean.

mod buffers;
mod disk;
mod export;
mod folder;
mod header;
mod index;
mod jobs;
mod key;
mod layout;
mod queue;
mod reader;
mod scan;
mod shared;
mod stats;
mod store;
mod transfer;
mod worth;
mod writer;

pub use buffers::PageBuffer;
pub use disk::{Disk, DiskFile, DiskLock, Entry, Files};
pub use folder::{
    FolderExtent, FolderRoot, list_folder, read_extent, remove_extents, verify_extent,
};
pub use header::{Header, MAX_BLOCKS, Outline, Problem, Seal, StoredBlock};
pub use jobs::{Arrival, Imported, Run, ToWrite};
pub use key::StoreKey;
pub use layout::{ExtentName, Kind, Layout};
pub use stats::{Failure, StoreStats};
pub use store::{HeldRuns, Keyspace, Store, StoreError, StoreOptions};
pub use transfer::{TransferError, TransferReader, TransferWriter};
pub use writer::has_ended;
