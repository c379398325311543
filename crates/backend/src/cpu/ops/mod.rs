//! The operations of the CPU.

pub(super) mod attend;
pub(super) mod compress;
pub(super) mod convolution;
pub(super) mod experts;
pub(super) mod heads;
pub(super) mod inputs;
pub(super) mod low_rank;
pub(super) mod products;
pub(super) mod recurrence;
pub(super) mod ropes;
pub(super) mod rows;
pub(super) mod sparse;
pub(super) mod streams;
pub(super) mod tables;
