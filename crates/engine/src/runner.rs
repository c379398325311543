//! A loaded model with its backend and KV cache: batches in, logits out.

use crate::cache_bytes::CacheBytes;
use crate::cache_size::{
    CacheRequest, CacheSize, FreeMemory, KvMemory, StateRequest, StateSize, available_memory,
};
use crate::identity::identity;
use crate::{Error, ModelInfo};
use backend::{
    Backend, Batch, Buffer, DEVICES, Device, DeviceOptions, InputSums, KvType, LayerCache, Memory,
    Mode,
};
use formats::{Checkpoint, Pooling};
use models::placement::{Placed, Placement, TensorInfo, digest};
use models::{Model, Ranks, WorkspaceLimits};
use std::sync::Arc;

/// How a model is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Device that computes.
    pub device: &'static Device,
    /// Number of compute threads; 0 for all cores.
    pub threads: usize,
    /// Whether each thread is pinned to its own CPU.
    pub pin: bool,
    /// Compute mode.
    pub mode: Mode,
    /// Storage type of the KV cache; `None` for the mode's default.
    pub kv_type: Option<KvType>,
    /// Maximum number of tokens of a sequence; `None` for the model's context, as far as memory
    /// allows.
    pub context: Option<usize>,
    /// Memory for the KV cache.
    pub kv_memory: KvMemory,
    /// Bytes for the states of sequences and their snapshots, if the model has states; `None` for
    /// two states for each running sequence, as far as a quarter of the free memory holds them.
    pub state_memory: Option<usize>,
    /// Tokens of a prompt between snapshots of states, besides those at marks; 0 for none.
    pub state_every: usize,
    /// Number of running sequences for which the caches have memory.
    pub parallel: usize,
    /// Positions of a KV block: a multiple of 16 that divides 512.
    pub block: usize,
    /// Prefill chunk size: maximum number of prompt tokens of a step.
    pub chunk: usize,
    /// Maximum number of rows of a batch that have logits.
    pub logit_rows: usize,
    /// Whether the output of every stage is checked for NaN and infinities.
    pub check: bool,
    /// Placement rules of weights; `None` for the built-in rules alone.
    pub placement: Option<Arc<Placement>>,
    /// Ranks that share the model. Each loads its part and computes the same batches.
    pub ranks: Ranks,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            device: &DEVICES[0],
            threads: 0,
            pin: false,
            mode: Mode::default(),
            kv_type: None,
            context: None,
            kv_memory: KvMemory::default(),
            state_memory: None,
            state_every: STATE_EVERY,
            parallel: 16,
            block: BLOCK,
            chunk: 512,
            logit_rows: 16,
            check: false,
            placement: None,
            ranks: Ranks::default(),
        }
    }
}

/// Default number of tokens between snapshots of states.
pub const STATE_EVERY: usize = 2048;
/// Default number of positions of a KV block.
pub const BLOCK: usize = 32;
/// Positions that attention sums at once; a multiple of the block size.
const SPAN: usize = 512;
/// Maximum number of threads.
const MAX_THREADS: usize = 1024;

/// A loaded model.
pub struct Runner {
    backend: Box<dyn Backend>,
    model: Box<dyn Model>,
    pub(crate) info: ModelInfo,
    pub(crate) settings: Settings,
    pub(crate) blocks: usize,
    /// Number of state slots; 0 if the model has no states.
    pub(crate) state_slots: usize,
    pub(crate) chunk: usize,
    /// Maximum number of positions that a row attends to, if every layer has a window.
    pub(crate) window: Option<usize>,
    pub(crate) limits: WorkspaceLimits,
    check: bool,
    warnings: Vec<String>,
    /// The logits of the last batch and their number of rows.
    logits: Option<(Buffer, usize)>,
    /// Number of hidden states of the last batch.
    states: usize,
    /// Number of values of a hidden state.
    pub(crate) state_size: usize,
    /// Pooling of hidden states, if the checkpoint names one.
    pub(crate) pooling: Option<Pooling>,
}

/// Everything but the request that decides the bits of an answer: equal settings, equal bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Digest of the checkpoint.
    pub checkpoint: String,
    /// Compute mode.
    pub mode: Mode,
    /// Storage type of the KV cache.
    pub kv_type: KvType,
    /// Name of the backend's arithmetic: the instruction set of a CPU.
    pub identity: String,
    /// Digest of what placement rules change; empty if they change nothing.
    pub placement: String,
    /// Number of ranks that hold a slice of each layer.
    pub slices: usize,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Runner({}, {})", self.info.name, self.settings.identity)
    }
}

impl Runner {
    /// Loads the model of `checkpoint`. Weights stay in the mapped files where their layout allows.
    ///
    /// # Errors
    ///
    /// If options are out of range, the model is not supported, or the memory does not suffice.
    pub fn load(checkpoint: &Checkpoint, options: &LoadOptions) -> Result<Self, Error> {
        let config = checkpoint.config();
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads if threads <= MAX_THREADS => threads,
            threads => return Err(Error::Threads { threads, most: MAX_THREADS }),
        };
        let LoadOptions { pin, mode, .. } = *options;
        let mut backend = options.device.open(DeviceOptions { threads, pin, mode })?;
        if options.block == 0
            || !options.block.is_multiple_of(16)
            || !SPAN.is_multiple_of(options.block)
        {
            return Err(Error::Block(options.block));
        }
        // No prompt exceeds the context.
        let most = options.context.unwrap_or(config.context_length).max(1);
        let chunk = options.chunk.clamp(1, most);
        let logit_rows = options.logit_rows.max(1);
        // A whole chunk and all sequences that decode.
        let limits = WorkspaceLimits { rows: chunk.saturating_add(logit_rows), logit_rows };
        let pooling = checkpoint.pooling().map_err(models::Error::from)?;
        let (placed, placement) = place(checkpoint, &*backend, options.placement.as_deref())?;
        let model = models::load(checkpoint, &mut *backend, limits, &options.ranks, &placed)?;
        let kv_type = options.kv_type.unwrap_or(options.mode.default_kv_type());
        let settings = Settings {
            checkpoint: identity(checkpoint),
            mode: options.mode,
            kv_type,
            identity: backend.identity(),
            placement,
            slices: options.ranks.slices.as_ref().map_or(1, |slices| slices.ranks()),
        };
        let (size, states) =
            make_cache(&mut *backend, &model.cache(), kv_type, config.context_length, options)?;
        let info = ModelInfo {
            name: config.name.clone(),
            architecture: config.architecture.clone(),
            context_length: size.context,
            vocab_size: config.vocab_size,
            cache_tokens: size.blocks[0] * options.block,
            uses_marks: states.slots > 0 || size.blocks.len() > 1,
        };
        // A single layer without a window keeps all positions.
        let widest = |widest: usize, window: &Option<usize>| Some(widest.max((*window)?));
        let window = config.windows.iter().try_fold(1, widest);
        let (blocks, check) = (size.blocks[0], options.check);
        Ok(Self {
            backend,
            model,
            info,
            settings,
            blocks,
            state_slots: states.slots,
            warnings: states.note.into_iter().collect(),
            chunk,
            window,
            limits,
            check,
            logits: None,
            states: 0,
            state_size: config.hidden_size,
            pooling,
        })
    }

    /// The loaded model.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// What the user should know about the loaded model: options that could not be met in full.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Everything but the request that decides the bits of an answer.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Number of blocks of the KV cache.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Maximum number of prompt tokens of a batch.
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// Maximum number of rows of a batch, and of rows with logits.
    pub fn limits(&self) -> WorkspaceLimits {
        self.limits
    }

    /// Positions of a block.
    pub fn block(&self) -> usize {
        self.info.cache_tokens / self.blocks
    }

    /// Number of compute threads.
    pub fn threads(&self) -> usize {
        self.backend.threads()
    }

    /// Name of the arithmetic in use: the instruction set of a CPU.
    pub fn isa(&self) -> &str {
        &self.settings.identity
    }

    /// Bytes held.
    pub fn memory(&self) -> Memory {
        self.backend.memory()
    }

    /// Pins the calling thread too, if threads are pinned. It should only compute from now on.
    pub fn pin_caller(&self) {
        self.backend.pin_caller();
    }

    /// Starts summing the inputs of the product with every matrix.
    pub fn collect_inputs(&mut self) {
        self.backend.input_sums();
    }

    /// Takes the sums since the last call, under the canonical names of the matrices.
    pub fn take_input_sums(&mut self) -> Vec<InputSums> {
        self.backend.input_sums().unwrap_or_default()
    }

    /// Touches the memory of `blocks` of the KV cache, so that the system provides it.
    pub fn touch_cache(&mut self, blocks: std::ops::Range<usize>) {
        self.backend.touch_cache(blocks);
    }

    /// Creates an empty batch with the capacity for any step of this model.
    pub fn batch(&self) -> Batch {
        Batch::with_capacity(self.limits.rows, self.limits.rows + self.blocks)
    }

    /// Copies the blocks that `batch` names, computes the batch and stores its keys and values.
    /// Returns the logits `[logit rows, vocab_size]`, on all ranks that share the model.
    ///
    /// # Errors
    ///
    /// If a checked value is not finite or the backend or another rank fails. After an error of a
    /// rank, all ranks have to be dropped.
    pub fn forward(&mut self, batch: &Batch) -> Result<&[f32], Error> {
        assert!(batch.rows() <= self.limits.rows, "more rows than the workspace holds");
        assert!(
            batch.logit_rows().len() <= self.limits.logit_rows,
            "more logits than the workspace holds"
        );
        (self.logits, self.states) = (None, 0);
        self.backend.copy_blocks(batch.copies());
        let logits = self.model.forward(&mut *self.backend, batch, self.check)?;
        self.logits = Some((logits, batch.logit_rows().len()));
        self.states = batch.state_rows().len();
        self.backend.fetch(logits, batch.logit_rows().len());
        self.backend.fetch(self.model.states(), self.states);
        Ok(self.logits())
    }

    /// The hidden states `[state rows, state_size]` of the last batch, after the last norm.
    pub fn states(&self) -> &[f32] {
        self.backend.read(self.model.states(), self.states)
    }

    /// The logits `[logit rows, vocab_size]` of the last batch.
    pub fn logits(&self) -> &[f32] {
        self.logits.map_or(&[], |(buffer, rows)| self.backend.read(buffer, rows))
    }
}

/// Returns the placement of each tensor, and a digest of what `rules` change in it.
fn place(
    checkpoint: &Checkpoint,
    backend: &dyn Backend,
    rules: Option<&Placement>,
) -> Result<(Vec<Placed>, String), Error> {
    let tensors = TensorInfo::all(checkpoint);
    let built_in = Placement::default().resolve(&tensors, backend)?;
    let Some(rules) = rules else { return Ok((built_in, String::new())) };
    let placed = rules.resolve(&tensors, backend)?;
    let digest = digest(&placed, &built_in);
    Ok((placed, digest))
}

/// Creates the KV cache that `options` request.
fn make_cache(
    backend: &mut dyn Backend,
    layers: &[LayerCache],
    kv_type: KvType,
    trained: usize,
    options: &LoadOptions,
) -> Result<(CacheSize, StateSize), Error> {
    let LoadOptions { block, context, kv_memory: memory, chunk, .. } = *options;
    let too_large = || Error::Context("a block of the KV cache is too large for memory".into());
    let bytes = CacheBytes::of(layers, block, kv_type).ok_or_else(too_large)?;
    let Memory { weights, workspace, .. } = backend.memory();
    let free = available_memory()
        .map(|bytes| FreeMemory { bytes, spare: bytes.saturating_sub(weights + workspace) });
    let (memory_of_states, parallel) = (options.state_memory, options.parallel);
    let states = StateRequest { memory: memory_of_states, slot_bytes: bytes.slot, parallel };
    let mut states = states.size(free)?;
    let free = free.map(|free| free.without(states.slots.saturating_mul(bytes.slot)));
    let (groups, parallel) = (&bytes.groups, states.parallel);
    let request = CacheRequest { memory, context, trained, block, groups, parallel, chunk };
    let mut size = request.size(free)?;
    // A system may have less memory than it reports; a default size shrinks to it.
    while let Err(error) = backend.cache(layers, block, size.blocks[0], kv_type) {
        let may_shrink = context.is_none() && !matches!(memory, KvMemory::Bytes(_));
        match error {
            backend::Error::Memory(_) if may_shrink && size.blocks[0] > 1 => size.blocks[0] /= 2,
            error => return Err(error.into()),
        }
        size.context = size.context.min(size.blocks[0] * block);
    }
    // All ranks use the size of the smallest.
    let ranks = &options.ranks;
    let blocks: Result<_, _> = size.blocks.iter().map(|&blocks| ranks.least(blocks)).collect();
    states.slots = ranks.least(states.slots)?;
    Ok((CacheSize { blocks: blocks?, context: ranks.least(size.context)? }, states))
}
