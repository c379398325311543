//! Foundation of the other crates: aligned buffers, read-only memory maps, bytes of weights, the
//! thread pool of the forward pass, a seeded random number generator, and names of runs of tokens.
//!
//! Invariant: nothing here knows of models or file formats. `unsafe` lives in `mem`, `mmap` and
//! `pool`, and nowhere else in this crate.

pub mod bytes;
pub mod mem;
pub mod mmap;
pub mod name;
pub mod numa;
pub mod pool;
pub mod rng;

pub use bytes::{Bytes, Storage};
pub use mem::{ALIGN, AlignedVec, OutOfMemory};
pub use mmap::Mmap;
pub use name::Name;
pub use pool::{MAX_MATRICES, OperationTime, PairCut, Profile, ThreadPool, Tile};
pub use rng::Rng;
