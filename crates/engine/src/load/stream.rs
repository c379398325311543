//! Memory for weights: which of them are in memory, and how much memory those have that are read
//! when they are needed.
//!
//! The KV cache is sized first. A model is loaded with all weights in memory, which takes none yet,
//! to know its workspace and its cache; if they do not fit in addition to these, it is loaded
//! again.

use super::error::Error;
use super::options::{LoadOptions, WeightsMemory};
use backend::{Backend, CPU, FreeMemory, Memory, StreamPlan};
use formats::Checkpoint;
use models::StageCuts;
use models::placement::{Placed, leave_table_on_disk, stream_experts, stream_layers};

/// Where the weights of a loaded model are.
#[derive(Clone, Debug, Default)]
pub struct WeightsPlan {
    /// The placement of every tensor.
    pub placed: Vec<Placed>,
    /// Bytes of weights that stay in memory.
    pub resident: usize,
    /// Most bytes for weights, where some are streamed and there is a limit.
    pub limit: Option<usize>,
    /// Memory for streamed weights, if there are any.
    pub stream: Option<StreamPlan>,
}

/// Memory that is left to the system: at least a tenth of what is there, and this much, or on
/// smaller machines a quarter.
const LEFT: usize = 2 << 30;

impl WeightsPlan {
    /// Bytes of memory for weights, buffers for reading included.
    pub fn bytes(&self) -> usize {
        let stream = self.stream.as_ref().map_or(0, |plan| plan.slot_bytes() + plan.buffers);
        self.resident + stream
    }

    /// Bytes that are read for a token, where this share of its experts is in memory.
    pub fn token_bytes(&self, hit_rate: f64) -> usize {
        let plan = |plan: &StreamPlan| (plan.token_bytes, plan.step_bytes);
        let (experts, layers) = self.stream.as_ref().map_or((0, 0), plan);
        layers + (experts as f64 * (1.0 - hit_rate)).round() as usize
    }
}

/// Memory that is left for this rank, or as much of it as is simulated to be there.
pub(super) fn free_memory(backend: &dyn Backend, options: &LoadOptions) -> Option<FreeMemory> {
    let FreeMemory { bytes, spare } = backend.free_memory()?;
    let ranks = options.ranks.on_host();
    let free = FreeMemory { bytes: bytes / ranks, spare: spare / ranks };
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

/// What a loaded model holds in addition to its weights.
fn beside(held: Memory) -> usize {
    held.workspace + held.cache + held.states
}

/// Whether all weights of a model that is loaded with them in memory fit.
fn all_fit(free: FreeMemory, held: Memory) -> bool {
    held.weights + beside(held) <= free.bytes
}

/// What is left to the system.
fn left_to_system(free: FreeMemory) -> usize {
    LEFT.min(free.bytes / 4).max(free.bytes / 10)
}

/// What weights may take where not all fit.
fn left_for_weights(free: FreeMemory, held: Memory) -> usize {
    free.bytes.saturating_sub(beside(held) + left_to_system(free))
}

/// Bytes in memory, of all weights or of a rank's part: the layers of its stage, of which slices
/// hold about equal parts.
fn bytes(placed: &[Placed], checkpoint: &Checkpoint, options: &LoadOptions) -> usize {
    let slices = options.ranks.slices();
    match options.ranks.own_layers() {
        Some(layers) => {
            let weights = placed.iter().map(|it| (it.name.as_str(), it.bytes));
            StageCuts::new(checkpoint.config(), weights).bytes(layers) / slices
        }
        None => placed.iter().map(|it| it.bytes).sum::<usize>() / slices,
    }
}

/// Leaves the embedding on disk, and if the weights take more than `limit` then, routed experts.
/// Returns whether it changes anything.
fn leave_on_disk(
    placed: &mut [Placed],
    checkpoint: &Checkpoint,
    limit: usize,
    options: &LoadOptions,
) -> bool {
    let before = bytes(placed, checkpoint, options);
    leave_table_on_disk(placed, checkpoint);
    if bytes(placed, checkpoint, options) > limit {
        stream_experts(placed);
    }
    bytes(placed, checkpoint, options) < before
}

/// Leaves weights on disk that cannot fit into memory, whatever cache and workspace take.
///
/// Returns the bytes of all weights.
pub(super) fn place_weights(
    placed: &mut [Placed],
    checkpoint: &Checkpoint,
    backend: &dyn Backend,
    options: &LoadOptions,
) -> usize {
    let all = bytes(placed, checkpoint, options);
    let limit = match options.weights_memory {
        WeightsMemory::All => None,
        WeightsMemory::Bytes(bytes) => Some(bytes),
        WeightsMemory::Auto => free_memory(backend, options).map(|free| free.bytes),
    };
    let Some(limit) = limit.filter(|_| backend.device() == &CPU) else { return all };
    if all > limit {
        leave_on_disk(placed, checkpoint, limit, options);
    }
    all
}

/// What more is left on disk where the memory turns out to be too little: the embedding, experts,
/// then layers.
pub(super) struct LeftOnDisk<'a> {
    /// The placement without them.
    whole: Vec<Placed>,
    placed: Vec<Placed>,
    /// Bytes by which the weights were found to be too many.
    excess: usize,
    checkpoint: &'a Checkpoint,
    options: &'a LoadOptions,
}

impl<'a> LeftOnDisk<'a> {
    /// Nothing more than the placement of a model says.
    pub fn of(placed: Vec<Placed>, checkpoint: &'a Checkpoint, options: &'a LoadOptions) -> Self {
        // Tensors of other stages come last.
        let (mut whole, others): (Vec<_>, Vec<_>) =
            placed.into_iter().partition(|it| is_own(it, checkpoint, options));
        whole.extend(others);
        Self { placed: whole.clone(), whole, excess: 0, checkpoint, options }
    }

    /// The placement of all tensors.
    pub fn placed(&self) -> &[Placed] {
        &self.placed
    }

    /// Leaves more weights on disk after an error. Returns false if the error has another reason,
    /// or no more are to be had.
    pub fn leave_more(&mut self, error: &Error) -> bool {
        let Error::WeightsMemory { least, limit, .. } = error else { return false };
        if least <= limit {
            return false;
        }
        let all = bytes(&self.whole, self.checkpoint, self.options);
        let before = self.placed.clone();
        // Layers are large, so that the same number may be enough for a little less.
        let step = (least - limit).max(all / 256);
        while self.placed == before && self.excess < all {
            self.excess += step;
            self.leave(all.saturating_sub(self.excess));
        }
        self.placed != before
    }

    /// Leaves as little on disk as brings the rest to `most` bytes.
    fn leave(&mut self, most: usize) {
        self.placed = self.whole.clone();
        leave_on_disk(&mut self.placed, self.checkpoint, most, self.options);
        // Of layers that are divided into slices, no file has the columns together.
        let is_sliced = self.options.ranks.slices() > 1;
        if !is_sliced && bytes(&self.placed, self.checkpoint, self.options) > most {
            let is_own = |it: &Placed| is_own(it, self.checkpoint, self.options);
            let own = self.placed.partition_point(is_own);
            stream_layers(&mut self.placed[..own], self.checkpoint, most);
        }
    }
}

/// Whether a tensor may be one of this rank's stage.
fn is_own(placed: &Placed, checkpoint: &Checkpoint, options: &LoadOptions) -> bool {
    let own = options.ranks.own_layers();
    own.is_none_or(|own| models::is_of_stage(checkpoint.config(), &own, &placed.name))
}

/// Leaves weights on disk if those of a loaded model do not fit, on any rank, now that all sizes
/// are known. Returns whether the model has to be loaded again, by all ranks.
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
    let is_same = fits || !leave_on_disk(placed, checkpoint, 0, options);
    Ok(options.ranks.least(usize::from(is_same))? == 0)
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
    let (held, free) = (backend.memory(), free_memory(backend, options));
    let limit = match (options.weights_memory, free) {
        (WeightsMemory::Bytes(limit), _) => limit,
        (WeightsMemory::Auto, Some(free)) if !all_fit(free, held) => left_for_weights(free, held),
        _ => usize::MAX,
    };
    let least = held.weights;
    if backend.device() != &CPU || least <= limit {
        return Ok(());
    }
    Err(Error::WeightsMemory { least, all, limit, beside: of_available(free, held, options) })
}

/// Gives streamed weights the memory that is left for weights, and returns the limit of all.
///
/// # Errors
/// If that is too little.
pub(super) fn start_stream(
    backend: &mut dyn Backend,
    all: usize,
    options: &LoadOptions,
) -> Result<Option<usize>, Error> {
    let (held, free) = (backend.memory(), free_memory(backend, options));
    let limit = match (options.weights_memory, free) {
        (WeightsMemory::Bytes(bytes), _) => Some(bytes),
        // The memory of caches and workspace was not written yet.
        (_, free) => free.map(|free| left_for_weights(free, held)),
    };
    let bytes = limit.unwrap_or(usize::MAX).saturating_sub(held.weights);
    let Some(stream) = backend.streamed_mut() else { return Ok(limit) };
    let started = stream.stream_weights(bytes, options.weights_read_threads);
    started.map_err(|error| match (error, limit) {
        (backend::Error::WeightsMemory { needed, .. }, Some(limit)) => {
            let least = held.weights + needed;
            Error::WeightsMemory { least, all, limit, beside: of_available(free, held, options) }
        }
        (error, _) => error.into(),
    })?;
    if let Some(stats) = stream.stream_stats() {
        let (held, all) = (stats.slot_bytes >> 20, stats.expert_bytes >> 20);
        tracing::info!("{held} of {all} MiB of streamed weights are in memory at a time");
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
        // Of less than 8 GiB, a quarter is left to the system.
        check(4, 10, 0, false, 2);
    }
}
