//! Memory for weights: which of them are in memory, and how much memory those have that are read
//! when they are needed.
//!
//! The KV cache is sized first. A model is loaded with all weights in memory, which takes none yet,
//! to know its workspace and its cache; if they do not fit beside these, it is loaded again.

use super::{LoadOptions, Loaded};
use crate::Error;
use backend::{Backend, CPU, FreeMemory, Memory, StreamPlan};
use formats::Checkpoint;
use models::placement::{Placed, leave_table_on_disk, stream_experts};

/// Memory for weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightsMemory {
    /// All weights are in memory if they fit beside KV cache and workspace, else what is available
    /// less these and less the larger of 2 GiB and a tenth.
    #[default]
    Auto,
    /// All weights are in memory.
    All,
    /// This many bytes, with the memory that experts are read into.
    Bytes(usize),
}

/// Where the weights of a loaded model are.
#[derive(Clone, Debug, Default)]
pub struct WeightsPlan {
    /// The placement of every tensor.
    pub placed: Vec<Placed>,
    /// Bytes of weights that stay in memory.
    pub resident: usize,
    /// Most bytes for weights, where experts are streamed and there is a limit.
    pub limit: Option<usize>,
    /// Memory for streamed experts, if there are any.
    pub stream: Option<StreamPlan>,
}

/// Default number of threads that read weights.
pub const WEIGHTS_READ_THREADS: usize = 8;
/// Least memory that is left to the system.
const LEFT: usize = 2 << 30;

impl WeightsPlan {
    /// Bytes of memory for weights, buffers for reading included.
    pub fn bytes(&self) -> usize {
        let stream = self.stream.as_ref().map_or(0, |plan| plan.slot_bytes() + plan.buffers);
        self.resident + stream
    }

    /// Bytes that are read for a token, where this share of its experts is in memory.
    pub fn token_bytes(&self, hit_rate: f64) -> usize {
        let all = self.stream.as_ref().map_or(0, |plan| plan.token_bytes);
        (all as f64 * (1.0 - hit_rate)).round() as usize
    }
}

/// Memory that is left, or as much of it as is simulated to be there.
pub(super) fn free_memory(backend: &dyn Backend, options: &LoadOptions) -> Option<FreeMemory> {
    let free = backend.free_memory()?;
    Some(options.simulate_memory.map_or(free, |most| free.at_most(most)))
}

/// Memory that is left, of which a cache of default size takes a share.
pub(super) fn free_for_cache(
    backend: &dyn Backend,
    streams: bool,
    options: &LoadOptions,
) -> Option<FreeMemory> {
    let free = free_memory(backend, options)?;
    let spare = match options.weights_memory {
        _ if !streams => free.spare,
        WeightsMemory::Bytes(limit) => {
            free.spare.saturating_sub(limit.saturating_sub(backend.memory().weights))
        }
        // The other half is for experts.
        WeightsMemory::Auto | WeightsMemory::All => free.spare / 2,
    };
    Some(FreeMemory { spare, ..free })
}

/// What a loaded model holds beside its weights.
fn beside(held: Memory) -> usize {
    held.workspace + held.cache + held.states
}

/// Whether all weights of a model that is loaded with them in memory fit.
fn all_fit(free: FreeMemory, held: Memory) -> bool {
    held.weights + beside(held) <= free.bytes
}

/// What is left to the system.
fn left_to_system(free: FreeMemory) -> usize {
    LEFT.max(free.bytes / 10)
}

/// What weights may take where not all fit.
fn left_for_weights(free: FreeMemory, held: Memory) -> usize {
    free.bytes.saturating_sub(beside(held) + left_to_system(free))
}

/// Bytes in memory, of all weights or of a rank's part: ranks hold about equal ones.
fn bytes(placed: &[Placed], options: &LoadOptions) -> usize {
    let ranks = [&options.ranks.stages, &options.ranks.slices];
    let ranks: usize = ranks.into_iter().flatten().map(|comm| comm.ranks()).product();
    placed.iter().map(|it| it.bytes).sum::<usize>() / ranks
}

/// Leaves the embedding on disk, and if the weights take more than `limit` then, routed experts.
/// Returns whether it changes anything.
fn leave_on_disk(
    placed: &mut [Placed],
    checkpoint: &Checkpoint,
    limit: usize,
    options: &LoadOptions,
) -> bool {
    let before = bytes(placed, options);
    leave_table_on_disk(placed, checkpoint);
    if bytes(placed, options) > limit {
        stream_experts(placed);
    }
    bytes(placed, options) < before
}

/// Leaves weights on disk that cannot fit into memory, whatever cache and workspace take.
///
/// Returns the bytes of all weights.
///
/// # Errors
/// If the weights that are always in memory take more than the user gives to all.
pub(super) fn place_weights(
    placed: &mut [Placed],
    checkpoint: &Checkpoint,
    backend: &dyn Backend,
    options: &LoadOptions,
) -> Result<usize, Error> {
    let all = bytes(placed, options);
    let limit = match options.weights_memory {
        WeightsMemory::All => None,
        WeightsMemory::Bytes(bytes) => Some(bytes),
        WeightsMemory::Auto => free_memory(backend, options).map(|free| free.bytes),
    };
    let Some(limit) = limit.filter(|_| backend.device() == &CPU) else { return Ok(all) };
    if all > limit {
        leave_on_disk(placed, checkpoint, limit, options);
    }
    match (options.weights_memory, bytes(placed, options)) {
        (WeightsMemory::Bytes(_), least) if least > limit => {
            Err(Error::WeightsMemory { least, all, limit, beside: String::new() })
        }
        _ => Ok(all),
    }
}

/// Leaves weights on disk if those of a loaded model do not fit, on any rank, now that all sizes
/// are known. Returns whether the model has to be loaded again.
///
/// # Errors
/// If a rank fails.
pub(super) fn place_again(
    placed: &mut [Placed],
    checkpoint: &Checkpoint,
    backend: &dyn Backend,
    options: &LoadOptions,
) -> Result<bool, Error> {
    let held = backend.memory();
    let fits = match options.weights_memory {
        _ if backend.device() != &CPU || streams(placed) => true,
        WeightsMemory::All => true,
        WeightsMemory::Bytes(limit) => held.weights <= limit,
        WeightsMemory::Auto => free_memory(backend, options).is_none_or(|free| all_fit(free, held)),
    };
    let fits = options.ranks.least(usize::from(fits))? == 1;
    Ok(!fits && leave_on_disk(placed, checkpoint, 0, options))
}

/// Whether any weights are read when they are needed.
pub(super) fn streams(placed: &[Placed]) -> bool {
    placed.iter().any(Placed::is_streamed)
}

/// Checks that weights of which none are streamed fit into the memory that the user gives them.
///
/// # Errors
/// If they do not.
pub(super) fn check_limit(
    backend: &dyn Backend,
    all: usize,
    options: &LoadOptions,
) -> Result<(), Error> {
    let least = backend.memory().weights;
    match options.weights_memory {
        WeightsMemory::Bytes(limit) if backend.device() == &CPU && least > limit => {
            Err(Error::WeightsMemory { least, all, limit, beside: String::new() })
        }
        _ => Ok(()),
    }
}

/// Gives streamed experts the memory that is left for weights, and returns the limit of all.
///
/// # Errors
/// If that is too little.
pub(super) fn start_stream(
    loaded: &mut Loaded,
    all: usize,
    options: &LoadOptions,
) -> Result<Option<usize>, Error> {
    let backend = &mut *loaded.backend;
    let (held, free) = (backend.memory(), free_memory(backend, options));
    let limit = match (options.weights_memory, free) {
        (WeightsMemory::Bytes(bytes), _) => Some(bytes),
        // The memory of caches and workspace was not written yet.
        (_, free) => free.map(|free| left_for_weights(free, held)),
    };
    let bytes = limit.unwrap_or(usize::MAX).saturating_sub(held.weights);
    let started = backend.stream_experts(bytes, options.weights_read_threads);
    started.map_err(|error| match (error, limit) {
        (backend::Error::WeightsMemory { needed, .. }, Some(limit)) => {
            let least = held.weights + needed;
            Error::WeightsMemory { least, all, limit, beside: of_available(free, held, options) }
        }
        (error, _) => error.into(),
    })?;
    if let Some(stats) = backend.stream_stats() {
        let (held, all) = (stats.slot_bytes >> 20, stats.expert_bytes >> 20);
        tracing::info!("{held} of {all} MiB of experts are in memory at a time");
    }
    Ok(limit)
}

/// How much of the available memory is for other things than weights, for messages.
fn of_available(free: Option<FreeMemory>, held: Memory, options: &LoadOptions) -> String {
    let named = matches!(options.weights_memory, WeightsMemory::Bytes(_));
    free.filter(|_| !named).map_or(String::new(), |free| {
        format!(
            " of {} available, beside {} for the KV cache and states, {} for the workspace and {} \
             that are left to the system",
            free.bytes,
            held.cache + held.states,
            held.workspace,
            left_to_system(free)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_and_workspace_come_before_weights() {
        let held = |weights, cache| Memory { weights, workspace: 1 << 30, cache, states: 0 };
        let free = |bytes| FreeMemory { bytes, spare: bytes };
        let check = |available: usize, weights: usize, cache: usize, fits, left: usize| {
            let (free, held) = (free(available << 30), held(weights << 30, cache << 30));
            assert_eq!((all_fit(free, held), left_for_weights(free, held)), (fits, left << 30));
        };
        check(20, 16, 3, true, 14);
        check(20, 17, 3, false, 14);
        check(20, 16, 4, false, 13);
        // A tenth is more than 2 GiB.
        check(40, 36, 4, false, 31);
        check(4, 10, 2, false, 0);
    }
}
