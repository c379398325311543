//! What a device implements: four traits, and others for what only some devices can do, which the
//! methods that return them tell.

mod backend;
mod cache;
mod input_sums;
mod operations;
mod weights;

pub use backend::{Backend, Device, DeviceInfo, DeviceOptions, Executor};
pub use cache::{Cache, StoredBlocks};
pub use input_sums::InputSums;
pub use operations::{AdapterOperations, BidirectionalAttention, Operations};
pub use weights::{CachedTables, Held, PackedWeights, RecordedRoutes, StreamedWeights, Weights};
