//! Foundation of the other crates: aligned buffers, read-only memory maps, bytes of weights, the
//! thread pool of the forward pass, and a seeded random number generator.
//!
//! Invariant: nothing here knows of models, file formats or tokens. `unsafe`
//! lives in `mem`, `mmap` and `pool`, and nowhere else in this crate.

pub mod bytes;
pub mod mem;
pub mod mmap;
pub mod numa;
pub mod pool;
pub mod rng;

pub use bytes::{Bytes, Storage};
pub use mem::{ALIGN, AlignedVec, OutOfMemory};
pub use mmap::Mmap;
pub use pool::{MAX_MATRICES, PairCut, ThreadPool, Tile};
pub use rng::Rng;
