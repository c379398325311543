//! GPUs through wgpu: Vulkan and Metal.
//!
//! Every operation of the device seam is a compute shader in WGSL, one file each. Weights lie in
//! the device's memory: quantised ones as the codes and scales of their file, multiplied with
//! activations that are rounded to bytes; BF16 and F16 as they are.
//!
//! Bits are those of the adapter and its driver, which the identity names: a sum has one order
//! whatever else is computed, no sum is left to atomics or subgroups, and what multiplies and adds
//! in one expression says `fma`, which a driver fuses always or never.
//!
//! Invariant: nothing here has `unsafe`, and nothing depends on architectures, files or text.

mod adapter;
mod gpu;
mod parts;
mod webgpu;
mod wgsl;

pub use adapter::WGPU;
