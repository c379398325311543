//! A loaded model with its backend and KV cache: batches in, logits out.

use crate::cache_size::{CacheRequest, CacheSize, FreeMemory, KvMemory, available_memory};
use crate::identity::identity;
use crate::{Error, ModelInfo};
use backend::{Backend, Batch, Buffer, Cpu, InputSums, KvType, LayerCache, Memory, Mode};
use formats::{Checkpoint, Pooling};
use models::placement::{Placed, Placement, TensorInfo, digest};
use models::{Model, Ranks, WorkspaceLimits};
use std::sync::Arc;

/// How a model is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Threads that compute; 0 for all cores.
    pub threads: usize,
    /// Whether each thread is pinned to a CPU of its own.
    pub pin: bool,
    /// Compute mode.
    pub mode: Mode,
    /// Storage type of the KV cache; `None` for the mode's default.
    pub kv_type: Option<KvType>,
    /// Most tokens of a sequence; `None` for the model's context, as far as memory allows.
    pub context: Option<usize>,
    /// Memory for the KV cache.
    pub kv_memory: KvMemory,
    /// Positions of a KV block: a multiple of 16 that divides 512.
    pub block: usize,
    /// Most prompt tokens computed at once.
    pub chunk: usize,
    /// Most rows whose logits can be had from one batch.
    pub logit_rows: usize,
    /// Whether every stage is checked for NaN and infinities.
    pub check: bool,
    /// Rules that say how weights are held and computed with; `None` for the built-in ones alone.
    pub placement: Option<Arc<Placement>>,
    /// Ranks that share the model, each of which loads it and computes the same batches.
    pub ranks: Ranks,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            threads: 0,
            pin: false,
            mode: Mode::default(),
            kv_type: None,
            context: None,
            kv_memory: KvMemory::default(),
            block: BLOCK,
            chunk: 512,
            logit_rows: 16,
            check: false,
            placement: None,
            ranks: Ranks::default(),
        }
    }
}

/// Positions of a KV block, where nobody says otherwise.
pub const BLOCK: usize = 32;
/// Positions that attention adds up at once; blocks divide it.
const SPAN: usize = 512;
/// More threads than this are taken for a slip.
const MAX_THREADS: usize = 1024;

/// A model ready to run.
pub struct Runner {
    backend: Cpu,
    model: Box<dyn Model>,
    info: ModelInfo,
    settings: Settings,
    blocks: usize,
    chunk: usize,
    window: Option<usize>,
    limits: WorkspaceLimits,
    check: bool,
    /// Where the logits of the last batch lie, and how many rows.
    logits: Option<(Buffer, usize)>,
    /// Rows of its states.
    states: usize,
    /// Values of a state.
    state_size: usize,
    pooling: Option<Pooling>,
}

/// What decides the bits of an answer besides the request: equal settings, equal bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Digest of the checkpoint.
    pub checkpoint: String,
    /// Compute mode.
    pub mode: Mode,
    /// Storage type of the KV cache.
    pub kv_type: KvType,
    /// Name of the instruction set.
    pub isa: &'static str,
    /// Digest of what rules of placement change; empty where that is nothing.
    pub placement: String,
    /// Ranks that each have a share of what is summed up.
    pub slices: usize,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Runner({}, {:?})", self.info.name, self.backend)
    }
}

impl Runner {
    /// Loads the model of `checkpoint`. Weights are used where the mapped files hold them.
    pub fn load(checkpoint: &Checkpoint, options: &LoadOptions) -> Result<Self, Error> {
        let config = checkpoint.config();
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads if threads <= MAX_THREADS => threads,
            threads => return Err(Error::Threads { threads, most: MAX_THREADS }),
        };
        let mut backend = Cpu::new(threads, options.mode)?;
        if options.pin {
            backend.pin_threads()?;
        }
        if options.block == 0
            || !options.block.is_multiple_of(16)
            || !SPAN.is_multiple_of(options.block)
        {
            return Err(Error::Block(options.block));
        }
        // No prompt is longer than the context.
        let most = options.context.unwrap_or(config.context_length).max(1);
        let chunk = options.chunk.clamp(1, most);
        let logit_rows = options.logit_rows.max(1);
        // A whole chunk beside all that decode.
        let limits = WorkspaceLimits { rows: chunk.saturating_add(logit_rows), logit_rows };
        let pooling = checkpoint.pooling().map_err(models::Error::from)?;
        let (placed, placement) = place(checkpoint, &backend, options.placement.as_deref())?;
        let model = models::load(checkpoint, &mut backend, limits, &options.ranks, &placed)?;
        let kv_type = options.kv_type.unwrap_or(options.mode.default_kv_type());
        let settings = Settings {
            checkpoint: identity(checkpoint),
            mode: options.mode,
            kv_type,
            isa: backend.isa().name(),
            placement,
            slices: options.ranks.slices.as_ref().map_or(1, |slices| slices.ranks()),
        };
        let size =
            make_cache(&mut backend, &model.cache(), kv_type, config.context_length, options)?;
        let info = ModelInfo {
            name: config.name.clone(),
            architecture: config.architecture.clone(),
            context_length: size.context,
            vocab_size: config.vocab_size,
            cache_tokens: size.blocks * options.block,
        };
        // One layer that sees everything keeps everything.
        let widest = |widest: usize, window: &Option<usize>| Some(widest.max((*window)?));
        let window = config.windows.iter().try_fold(1, widest);
        let (blocks, check) = (size.blocks, options.check);
        Ok(Self {
            backend,
            model,
            info,
            settings,
            blocks,
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

    /// What is loaded.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// What decides the bits of an answer besides the request.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Blocks of the KV cache.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Positions of a block.
    pub fn block(&self) -> usize {
        self.info.cache_tokens / self.blocks
    }

    /// Positions that a row sees at most, if no layer sees more.
    pub fn window(&self) -> Option<usize> {
        self.window
    }

    /// Most prompt tokens of a batch.
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// Most rows of a batch, and most of them with logits.
    pub fn limits(&self) -> WorkspaceLimits {
        self.limits
    }

    /// Threads in use.
    pub fn threads(&self) -> usize {
        self.backend.threads()
    }

    /// Name of the instruction set in use.
    pub fn isa(&self) -> &'static str {
        self.backend.isa().name()
    }

    /// Bytes held.
    pub fn memory(&self) -> Memory {
        self.backend.memory()
    }

    /// Pins the calling thread too, where threads are pinned: it shall only compute from now on.
    pub fn pin_caller(&self) {
        self.backend.pin_caller();
    }

    /// From now on sums up what goes into the product with every matrix.
    pub fn collect_inputs(&mut self) {
        self.backend.collect_inputs();
    }

    /// The sums since they were last taken, under the canonical names of the matrices.
    pub fn take_input_sums(&mut self) -> Vec<InputSums> {
        self.backend.take_input_sums()
    }

    /// Has the system give the memory of `blocks` of the KV cache before they are written.
    pub fn touch_cache(&mut self, blocks: std::ops::Range<usize>) {
        self.backend.touch_cache(blocks);
    }

    /// An empty batch that any step of this model fits into.
    pub fn batch(&self) -> Batch {
        Batch::with_capacity(self.limits.rows, self.limits.rows + self.blocks)
    }

    /// Copies the blocks that `batch` wants copied, computes it and stores its keys and values; gives one row of `vocab_size` logits
    /// for each of its logit rows. Ranks that share a model all get them; after an error on one of
    /// them all have to be dropped.
    pub fn forward(&mut self, batch: &Batch) -> Result<&[f32], Error> {
        assert!(batch.rows() <= self.limits.rows, "more rows than the workspace holds");
        assert!(batch.logit_rows().len() <= self.limits.logit_rows, "more logits than asked for");
        (self.logits, self.states) = (None, 0);
        self.backend.copy_blocks(batch.copies());
        let logits = self.model.forward(&mut self.backend, batch, self.check)?;
        self.logits = Some((logits, batch.logit_rows().len()));
        self.states = batch.state_rows().len();
        Ok(self.logits())
    }

    /// The states of the last batch that was computed, after the last norm: one row of
    /// [`state_size`](Self::state_size) values for each of its state rows.
    pub fn states(&self) -> &[f32] {
        self.backend.read(self.model.states(), self.states)
    }

    /// Values of a state.
    pub fn state_size(&self) -> usize {
        self.state_size
    }

    /// How the checkpoint wants states pooled; `None` where it does not say.
    pub fn pooling(&self) -> Option<Pooling> {
        self.pooling
    }

    /// The logits of the last batch that was computed.
    pub fn logits(&self) -> &[f32] {
        self.logits.map_or(&[], |(buffer, rows)| self.backend.read(buffer, rows))
    }
}

/// What is decided for each tensor, and a digest of what rules change in it.
fn place(
    checkpoint: &Checkpoint,
    backend: &Cpu,
    rules: Option<&Placement>,
) -> Result<(Vec<Placed>, String), Error> {
    let (tensors, mode) = (TensorInfo::all(checkpoint), backend.mode());
    let built_in = Placement::default().resolve(&tensors, mode, backend.isa())?;
    let Some(rules) = rules else { return Ok((built_in, String::new())) };
    let placed = rules.resolve(&tensors, mode, backend.isa())?;
    let digest = digest(&placed, &built_in);
    Ok((placed, digest))
}

/// Makes the KV cache as `options` want it.
fn make_cache(
    backend: &mut Cpu,
    layers: &[LayerCache],
    kv_type: KvType,
    trained: usize,
    options: &LoadOptions,
) -> Result<CacheSize, Error> {
    let LoadOptions { block, context, kv_memory: memory, .. } = *options;
    let block_bytes = layers.iter().map(|layer| layer.block_bytes(block, kv_type)).sum();
    let request = CacheRequest { memory, context, trained, block, block_bytes };
    let Memory { weights, workspace, .. } = backend.memory();
    let free = available_memory()
        .map(|bytes| FreeMemory { bytes, spare: bytes.saturating_sub(weights + workspace) });
    let mut size = request.size(free)?;
    // A system may have less to give than it says; a default has to make do with that.
    while let Err(error) = backend.cache(layers, block, size.blocks, kv_type) {
        let may_shrink = context.is_none() && !matches!(memory, KvMemory::Bytes(_));
        match error {
            backend::Error::Memory(_) if may_shrink && size.blocks > 1 => size.blocks /= 2,
            error => return Err(error.into()),
        }
        size.context = size.context.min(size.blocks * block);
    }
    // What ranks have room for may differ, what they do with it must not.
    let ranks = &options.ranks;
    Ok(CacheSize { blocks: ranks.least(size.blocks)?, context: ranks.least(size.context)? })
}
