//! Foundation of the other crates: aligned buffers, read-only memory maps, bytes of weights, reads
//! past the page cache and the threads that make them, the thread pool of the forward pass, a
//! seeded random number generator, names of runs of tokens, sizes as people write them, and the
//! user's folders.
//!
//! Invariant: nothing here knows of models or file formats. `unsafe` lives in `mem`, `mmap`,
//! `pool` and `tiles`, and nowhere else in this crate.

pub mod bytes;
pub mod direct;
mod interrupted;
pub mod math;
pub mod mem;
pub mod mmap;
pub mod name;
pub mod numa;
mod output;
pub mod pages;
pub mod pool;
pub mod read_pool;
pub mod rng;
pub mod size;
mod tiles;
pub mod user_folders;

pub use bytes::{Bytes, Storage};
pub use direct::{DirectFile, FilePart, free_space};
pub use interrupted::Interrupted;
pub use mem::{ALIGN, AlignedVec, OutOfMemory, give_back_free_memory};
pub use mmap::Mmap;
pub use name::Name;
pub use output::check_output;
pub use pages::PageVec;
pub use pool::{OperationTime, Profile, ThreadPool, bind_thread};
pub use read_pool::{ReadJob, ReadPool, Urgency};
pub use rng::Rng;
pub use size::parse_size;
pub use tiles::{MAX_MATRICES, PairCut, Tile};
