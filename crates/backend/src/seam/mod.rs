//! What a device implements: four traits, and others for what only some devices can do, which the
//! methods that return them tell.

mod cache;
mod device;
mod executor;
mod input_sums;
mod operations;
mod weights;

pub use cache::{Cache, StoredBlocks};
pub use device::{Device, DeviceInfo, DeviceOptions, Held};
pub use executor::Executor;
pub use input_sums::InputSums;
pub use operations::{AdapterOperations, BidirectionalAttention, Operations};
pub use weights::{PackedWeights, RecordedRoutes, StreamedWeights, Weights};

/// A device that models are loaded into. Whatever implements the four traits is one.
pub trait Backend: Operations + Weights + Cache + Executor {}

impl<T: Operations + Weights + Cache + Executor> Backend for T {}
