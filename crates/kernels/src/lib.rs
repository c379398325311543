//! Kernels: functions over slices, and the table of storage types of weights.
//!
//! Invariant: nothing here knows of files, tensors with names, or models.

pub mod quant;
