//! The CPU: kernels over slices, spread over a thread pool along output elements.

mod core;
mod device;
mod kv;
mod machine;
mod ops;
mod packed_parts;
mod packing;
mod scratch;
mod seam;
mod states;
mod stream;
mod threads;
mod weights;

pub use device::CPU;
pub use machine::Cpu;
