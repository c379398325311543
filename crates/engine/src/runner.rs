//! A loaded model with its backend and KV cache: batches in, logits out.

mod adapters;
mod cache;
mod expert_routes;
mod loaded;
mod pack;
mod stored;
mod stream;
mod texts;

use crate::adapters::AdapterSource;
use crate::cache_bytes::LayerBytes;
use crate::cache_rounding::{CacheRounding, rounding};
use crate::cache_size::KvMemory;
use crate::embedding_pooler::EmbeddingDefaults;
use crate::expert_profile::ProfileUse;
use crate::handle::ModelTask;
use crate::identity::identity;
use crate::{Error, ModelInfo};
use adapters::ModelAdapters;
use backend::{
    Backend, Batch, Buffer, DeviceChoice, DeviceOptions, GroupSize, InputSums, KvType, Memory,
    Mode, StreamStats,
};
use base::Profile;
use cache::CacheMade;
use expert_routes::ExpertRoutes;
use formats::{Checkpoint, ModelConfig, Pooling};
use loaded::{Loaded, load_weights};
use models::placement::{Placed, Placement, TensorInfo, digest};
use models::{Model, Ranks, WorkspaceLimits};
pub use pack::{PACK_EXTENSION, PackChoice, PackedPart};
use std::path::PathBuf;
use std::sync::Arc;
pub use stream::{WEIGHTS_READ_THREADS, WeightsMemory, WeightsPlan};
use texts::{embedding, task};

/// How a model is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Device that computes.
    pub device: DeviceChoice,
    /// Most bytes of the device's memory; `None` for all.
    pub device_memory: Option<usize>,
    /// Number of compute threads; 0 for all cores.
    pub threads: usize,
    /// Whether each thread is pinned to its own CPU.
    pub pin: bool,
    /// Whether threads are bound to NUMA nodes, each of which computes a fixed part of products.
    pub numa: bool,
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
    /// How cached rows are rounded, in models that were trained for it; `None` for the mode's
    /// default.
    pub rounding: Option<CacheRounding>,
    /// Positions of a KV block: a multiple of 16 that divides 512.
    pub block: usize,
    /// Prefill chunk size: maximum number of prompt tokens of a step. `None` for [`CHUNK`], or for
    /// [`STREAMED_CHUNK`] where weights are streamed.
    pub chunk: Option<usize>,
    /// Maximum number of rows of a batch that have logits.
    pub logit_rows: usize,
    /// How states become a vector where a request does not say; `None` for what the checkpoint
    /// says.
    pub pooling: Option<Pooling>,
    /// Whether the output of every stage is checked for NaN and infinities.
    pub check: bool,
    /// Placement rules of weights; `None` for the built-in rules alone.
    pub placement: Option<Arc<Placement>>,
    /// Memory for weights: what does not fit is read from disk when it is needed.
    pub weights_memory: WeightsMemory,
    /// Number of threads that read such weights.
    pub weights_read_threads: usize,
    /// Bytes of memory that count as available at most, for trials; `None` for all that are.
    pub simulate_memory: Option<usize>,
    /// Which file of packed weights is used.
    pub pack: PackChoice,
    /// The file that remembers digests of weights. A digest that it has must be that of the packed
    /// weights.
    pub digests: Option<PathBuf>,
    /// The file that a trace of the choices of experts is written to.
    pub route_trace: Option<PathBuf>,
    /// Profiles of earlier runs, which tell what is read ahead where experts are streamed.
    pub expert_profiles: Option<ProfileUse>,
    /// Adapters that sequences are computed with unless they name others.
    pub adapters: Vec<AdapterSource>,
    /// Ranks that share the model. Each loads its part and computes the same batches.
    pub ranks: Ranks,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            device: DeviceChoice::default(),
            device_memory: None,
            threads: 0,
            pin: false,
            numa: false,
            mode: Mode::default(),
            kv_type: None,
            context: None,
            kv_memory: KvMemory::default(),
            state_memory: None,
            state_every: STATE_EVERY,
            parallel: 1,
            rounding: None,
            block: BLOCK,
            chunk: None,
            logit_rows: 16,
            pooling: None,
            check: false,
            placement: None,
            weights_memory: WeightsMemory::default(),
            weights_read_threads: WEIGHTS_READ_THREADS,
            simulate_memory: None,
            pack: PackChoice::Off,
            digests: None,
            route_trace: None,
            expert_profiles: None,
            adapters: Vec::new(),
            ranks: Ranks::default(),
        }
    }
}

/// Default number of tokens between snapshots of states.
pub const STATE_EVERY: usize = 2048;
/// Default number of positions of a KV block.
pub const BLOCK: usize = 32;
/// Default prefill chunk size.
pub const CHUNK: usize = 512;
/// Default prefill chunk size of models whose weights are streamed: a step reads most of them,
/// whatever its rows.
pub const STREAMED_CHUNK: usize = 4096;
/// Positions that attention sums at once; a multiple of the block size.
const SPAN: usize = 512;
/// Maximum number of threads.
pub const MAX_THREADS: usize = 1024;

/// A loaded model.
pub struct Runner {
    backend: Box<dyn Backend>,
    model: Box<dyn Model>,
    pub(crate) info: ModelInfo,
    pub(crate) settings: Settings,
    /// The groups of cached rows, the trunk first.
    pub(crate) groups: Vec<GroupSize>,
    layer_bytes: LayerBytes,
    /// Whether the layers are divided among stages.
    is_stage: bool,
    /// What is done with the choices of experts.
    routes: ExpertRoutes,
    /// Number of state slots, 0 where no layer is recurrent.
    pub(crate) states: usize,
    pub(crate) state_every: usize,
    pub(crate) chunk: usize,
    pub(crate) limits: WorkspaceLimits,
    weights: WeightsPlan,
    /// Whether a warning has said that slots are not locked.
    lock_refused: bool,
    check: bool,
    warnings: Vec<String>,
    adapters: ModelAdapters,
    /// The logits of the last batch and their number of rows.
    logits: Option<(Buffer, usize)>,
    /// Number of hidden states of the last batch.
    hidden: usize,
    /// Capacity above which a sequence has the frequencies of long ones, where the model has such.
    long_from: Option<usize>,
    /// What the model says of vectors of texts.
    pub(crate) embedding: EmbeddingDefaults,
    is_encoder: bool,
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
    /// How cached rows are rounded; `None` where the model was not trained for it.
    pub rounding: Option<CacheRounding>,
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
        let backend = open(options)?;
        let unlimited = unlimited(options, &*backend);
        let (rounding, unrounded) = rounding(config, options.rounding, options.mode)?;
        let native = rounding == Some(CacheRounding::Native);
        let kv_type = options.kv_type.unwrap_or(options.mode.default_kv_type());
        check_kv_type(config, kv_type, native)?;
        let (placed, placement) = place(checkpoint, &*backend, options.placement.as_deref())?;
        let settings = Settings {
            checkpoint: identity(checkpoint),
            mode: options.mode,
            kv_type,
            identity: backend.identity(),
            placement,
            slices: options.ranks.slices.as_ref().map_or(1, |slices| slices.ranks()),
            rounding,
        };
        let (loaded, weights) = load_weights(backend, (checkpoint, placed), &settings, options)?;
        let Loaded { mut backend, model, layer_bytes, cache, chunk, limits } = loaded;
        let routes = ExpertRoutes::start(&mut *backend, config, &settings.checkpoint, options)?;
        let adapters = ModelAdapters::open((config, &mut *backend, &*model), options)?;
        let CacheMade { groups, states, context, note } = cache;
        let embedding = embedding(checkpoint, options, &*model);
        let info = ModelInfo {
            name: config.name.clone(),
            architecture: config.architecture.clone(),
            context_length: context,
            vocab_size: config.vocab,
            cache_tokens: groups[0].blocks * options.block,
            task: task(config),
            hidden_size: config.hidden,
            token_types: config.embedding.token_types.max(1),
            uses_marks: states > 0 || groups.len() > 1,
        };
        Ok(Self {
            backend,
            model,
            info,
            settings,
            groups,
            layer_bytes,
            is_stage: options.ranks.stages.is_some(),
            routes,
            states,
            state_every: options.state_every,
            warnings: checkpoint
                .warnings()
                .iter()
                .cloned()
                .chain(note)
                .chain(unrounded)
                .chain(unlimited)
                .collect(),
            chunk,
            limits,
            weights,
            lock_refused: false,
            check: options.check,
            adapters,
            logits: None,
            hidden: 0,
            long_from: config.long_from(),
            embedding,
            is_encoder: config.is_encoder(),
        })
    }

    /// The loaded model.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// # Errors
    ///
    /// [`Error::NoText`] if the model computes embeddings or scores, and no logits.
    pub fn check_generates(&self) -> Result<(), Error> {
        match self.info.task {
            ModelTask::Generate => Ok(()),
            ModelTask::Embed | ModelTask::Score { .. } => Err(Error::NoText),
        }
    }

    /// What the user should know about the loaded model: tensors that contradict its configuration,
    /// and options that could not be met in full.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Everything but the request that decides the bits of an answer.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Number of blocks of each group of cached rows, the trunk first.
    pub fn blocks(&self) -> impl Iterator<Item = usize> {
        self.groups.iter().map(|group| group.blocks)
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
        self.info.cache_tokens / self.groups[0].blocks
    }

    /// Number of compute threads.
    pub fn threads(&self) -> usize {
        self.backend.threads()
    }

    /// Name of the arithmetic in use: the instruction set of a CPU.
    pub fn isa(&self) -> &str {
        &self.settings.identity
    }

    /// Name of the kind of device that computes.
    pub fn device(&self) -> &'static str {
        self.backend.device().name
    }

    /// Bytes held.
    pub fn memory(&self) -> Memory {
        self.backend.memory()
    }

    /// Where the weights are.
    pub fn weights_plan(&self) -> &WeightsPlan {
        &self.weights
    }

    /// What has happened to weights that are read when they are needed; `None` where there are
    /// none.
    pub fn stream_stats(&self) -> Option<StreamStats> {
        self.backend.streamed()?.stream_stats()
    }

    /// Mean bytes of an expert that is read from disk; `None` where there are none.
    pub fn streamed_read_bytes(&self) -> Option<usize> {
        self.stream_stats()?;
        let sizes = self.backend.streamed()?.expert_bytes();
        let mean = sizes.iter().map(|it| it.read).sum::<usize>() / sizes.len().max(1);
        Some(mean).filter(|bytes| *bytes > 0)
    }

    /// Whether a sequence that may grow to `capacity` tokens is computed with the rotary
    /// frequencies of long ones, where the model has such. Its blocks are not those of short
    /// sequences.
    pub fn is_long(&self, capacity: usize) -> bool {
        self.long_from.is_some_and(|original| capacity > original)
    }

    /// Whether positions attend to later ones too, so that a prompt is computed in one step.
    pub fn is_encoder(&self) -> bool {
        self.is_encoder
    }

    /// Pins the calling thread too, if threads are pinned. It should only compute from now on.
    pub fn pin_caller(&self) {
        self.backend.pin_caller();
    }

    /// Prepares some of the weights that no product has used yet, which the first product with them
    /// would do. Returns whether there are more.
    pub fn prepare_weights(&mut self) -> bool {
        self.backend.packed().is_some_and(|packed| packed.prepare_weights())
    }

    /// Whether steps since the last call took time to prepare weights, unlike later ones.
    pub(crate) fn take_prepared(&mut self) -> bool {
        self.backend.packed().is_some_and(|packed| packed.take_prepared())
    }

    /// Hands the times of all operations from now on to `profile`, if the device takes them.
    pub fn profile(&mut self, profile: Option<Arc<Profile>>) {
        self.backend.profile(profile);
    }

    /// Begins work of the calling thread outside the forward pass, for the profile.
    pub(crate) fn begin(&self, operation: &str) {
        self.backend.begin_other(operation);
    }

    /// As [`backend::Executor::share_work`].
    pub(crate) fn share_work(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        self.backend.share_work(count, work);
    }

    /// Starts summing the inputs of the product with every matrix.
    pub fn collect_inputs(&mut self) {
        self.backend.input_sums();
    }

    /// Takes the sums since the last call, under the canonical names of the matrices.
    pub fn take_input_sums(&mut self) -> Vec<InputSums> {
        self.backend.input_sums().unwrap_or_default()
    }

    /// Creates an empty batch with the capacity for any step of this model.
    pub fn batch(&self) -> Batch {
        let groups = self.groups.len();
        let blocks = groups * (self.limits.rows + self.groups[0].blocks);
        Batch::with_capacity(self.limits.rows, blocks, groups)
    }

    /// Copies the blocks and states that `batch` names, computes the batch and stores its keys and
    /// values. Returns the logits `[logit rows, vocab_size]`, on all ranks that share the model.
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
        (self.logits, self.hidden) = (None, 0);
        self.begin("copy_blocks");
        self.backend.begin(batch);
        self.backend.copy_blocks(batch.copies());
        self.backend.copy_states(batch.state_copies());
        let logits = self.model.forward(&mut *self.backend, batch, self.check)?;
        self.logits = Some((logits, batch.logit_rows().len()));
        self.hidden = batch.hidden_rows().len();
        self.backend.fetch(logits, batch.logit_rows().len());
        self.backend.fetch(self.model.hidden(), self.hidden);
        self.backend.end()?;
        self.routes.step(&mut *self.backend);
        self.warn_of_unlocked();
        Ok(self.logits())
    }

    /// Says once that the system does not lock the memory of streamed weights, where it swaps.
    fn warn_of_unlocked(&mut self) {
        let stats = self.stream_stats().filter(|stats| stats.lock_refused);
        if let Some(StreamStats { locked, slot_bytes, .. }) = stats
            && !std::mem::replace(&mut self.lock_refused, true)
        {
            tracing::warn!(
                "{} of {} MiB of streamed experts are locked in memory, the system may swap out \
                 others (the limit is `ulimit -l` in KiB, or LimitMEMLOCK= of a service)",
                locked >> 20,
                slot_bytes >> 20
            );
        }
    }

    /// The hidden states `[hidden rows, hidden_size]` of the last batch, after the last norm.
    pub fn hidden(&self) -> &[f32] {
        self.backend.read(self.model.hidden(), self.hidden)
    }

    /// The logits `[logit rows, vocab_size]` of the last batch.
    pub fn logits(&self) -> &[f32] {
        self.logits.map_or(&[], |(buffer, rows)| self.backend.read(buffer, rows))
    }
}

/// The most prompt tokens of a step, and the most rows of a batch.
///
/// # Errors
///
/// [`Error::Block`] if kernels do not support the blocks.
fn limits(
    config: &ModelConfig,
    options: &LoadOptions,
    chunk: usize,
) -> Result<(usize, WorkspaceLimits), Error> {
    let LoadOptions { block, context, .. } = *options;
    if block == 0 || !block.is_multiple_of(16) || !SPAN.is_multiple_of(block) {
        return Err(Error::Block(block));
    }
    // No prompt exceeds the context.
    let context = context.unwrap_or(config.context).max(1);
    let chunk = if config.is_encoder() { chunk.max(1) } else { chunk.clamp(1, context) };
    let logit_rows = options.logit_rows.max(1);
    // The texts of an encoder are not cut.
    let most = if config.is_encoder() { chunk.max(context) } else { chunk };
    // A whole chunk and all sequences that decode.
    Ok((chunk, WorkspaceLimits { rows: most.saturating_add(logit_rows), logit_rows }))
}

/// What to say of a limit of a GPU's memory where none computes.
fn unlimited(options: &LoadOptions, backend: &dyn Backend) -> Option<String> {
    let is_idle = options.device_memory.is_some() && !backend.device().is_gpu;
    is_idle.then(|| "--device-memory has no effect: no GPU computes".to_owned())
}

/// Opens the device that `options` choose.
fn open(options: &LoadOptions) -> Result<Box<dyn Backend>, Error> {
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads if threads <= MAX_THREADS => threads,
        threads => return Err(Error::Threads { threads, most: MAX_THREADS }),
    };
    let LoadOptions { pin, numa, mode, device_memory: memory, .. } = *options;
    let DeviceChoice { device, which } = &options.device;
    let which = which.as_deref();
    Ok((device.open)(&DeviceOptions { threads, pin, numa, mode, which, memory })?)
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

/// The types in which the rows of a model can be cached. `native` says whether rows are rounded as
/// the model was trained for.
pub fn kv_types(config: &ModelConfig, native: bool) -> Vec<KvType> {
    let plain = config.ops().any(|op| op.compressed().is_some());
    let fits = |ty: &KvType| match ty {
        KvType::Fp8 => plain && native,
        KvType::Q8_0 => !plain,
        KvType::F32 | KvType::Bf16 | KvType::F16 => true,
    };
    KvType::ALL.into_iter().filter(fits).collect()
}

/// Checks that rows of the model can be held in a storage type.
///
/// # Errors
///
/// [`Error::KvType`] if they cannot.
fn check_kv_type(config: &ModelConfig, ty: KvType, native: bool) -> Result<(), Error> {
    let types = kv_types(config, native);
    if types.contains(&ty) {
        return Ok(());
    }
    let names: Vec<_> = types.into_iter().map(KvType::name).collect();
    Err(Error::KvType { expected: names.join(", "), found: ty.name() })
}
