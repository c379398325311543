//! The traits of the seam for the CPU.

mod cache;
mod executor;
mod operations;
mod streamed;
mod weights;
