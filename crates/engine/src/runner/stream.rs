//! Memory for weights: whether all are in memory, and how much those have that are read when they
//! are needed.

use super::LoadOptions;
use crate::Error;
use backend::{Backend, CPU, FreeMemory};
use models::placement::{Placed, stream_experts, stream_layers};

/// Memory for weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightsMemory {
    /// All weights are in memory if they fit, else what leaves the larger of 2 GiB and a tenth of
    /// the available memory.
    #[default]
    Auto,
    /// All weights are in memory.
    All,
    /// This many bytes, with the memory that experts are read into.
    Bytes(usize),
}

/// Default number of threads that read weights.
pub const WEIGHTS_READ_THREADS: usize = 8;
/// Least memory that is left to the system.
const LEFT: usize = 2 << 30;

/// What weights may take of `free` memory where the user names no size.
fn usable(free: FreeMemory) -> usize {
    free.bytes - free.bytes.min(LEFT.max(free.bytes / 10))
}

/// Leaves experts on disk where not all weights fit into memory, and layers where the others do not.
/// Returns whether any weights are there.
///
/// # Errors
/// If the least of it takes more than the memory that is given to weights.
pub(super) fn streams_weights(
    placed: &mut [Placed],
    backend: &dyn Backend,
    options: &LoadOptions,
) -> Result<bool, Error> {
    if backend.device() != &CPU {
        return Ok(false);
    }
    // Ranks hold about equal parts.
    let ranks = [&options.ranks.stages, &options.ranks.slices];
    let ranks: usize = ranks.into_iter().flatten().map(|comm| comm.ranks()).product();
    let bytes = |placed: &[Placed]| placed.iter().map(|it| it.bytes).sum::<usize>() / ranks;
    let all = bytes(placed);
    let limit = match options.weights_memory {
        WeightsMemory::All => None,
        WeightsMemory::Bytes(bytes) => Some(bytes),
        WeightsMemory::Auto => backend.free_memory().map(usable),
    };
    if limit.is_none_or(|limit| all <= limit) {
        return Ok(placed.iter().any(Placed::is_streamed));
    }
    let streams = stream_experts(placed);
    let (held, limit) = (bytes(placed), limit.unwrap_or(usize::MAX));
    if held <= limit {
        return Ok(streams);
    }
    let least = stream_layers(placed, limit * ranks) / ranks;
    match options.weights_memory {
        WeightsMemory::Bytes(_) if least > limit => {
            Err(Error::WeightsMemory { resident: least, all, limit })
        }
        _ => Ok(placed.iter().any(Placed::is_streamed)),
    }
}

/// Gives streamed weights the memory that is left for weights.
///
/// # Errors
/// If that is too little.
pub(super) fn start_stream(backend: &mut dyn Backend, options: &LoadOptions) -> Result<(), Error> {
    let held = backend.memory();
    let limit = match (options.weights_memory, backend.free_memory()) {
        (WeightsMemory::Bytes(bytes), _) => bytes,
        // The memory of caches and workspace was not written yet.
        (_, Some(free)) => usable(free.without(held.workspace + held.cache + held.states)),
        (_, None) => usize::MAX,
    };
    let bytes = limit.saturating_sub(held.weights);
    backend.stream_weights(bytes, options.weights_read_threads)?;
    if let Some(stats) = backend.stream_stats() {
        let (held, all) = (stats.slot_bytes >> 20, stats.expert_bytes >> 20);
        tracing::info!("{held} of {all} MiB of streamed weights are in memory at a time");
    }
    Ok(())
}
