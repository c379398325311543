//! The prefix cache on disk: blocks that are worth it are handed to a store, and found there when a
//! request needs them.
//!
//! Nothing here waits for the disk. Blocks are copied out between steps, a bounded number of bytes
//! at a time, and only while the store has buffers for them; blocks that come are copied in the
//! same way, before the sequence that needs them is admitted.

mod copies;
mod engine_disk;
mod followed_disk;
mod keep;
mod memory;
mod options;
mod pace;
mod parts;
mod restore;

pub(crate) use engine_disk::Disk;
pub(crate) use followed_disk::FollowedDisk;
pub(crate) use memory::CacheMemory;
pub use options::{DiskCache, DiskWrite, MIN_TOKENS};
pub(crate) use parts::CacheParts;
