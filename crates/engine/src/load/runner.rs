//! A loaded model with its backend and KV cache: batches in, logits out.

use super::adapter_base::AdapterBase;
use super::agreed_options::agreed_options;
use super::cache_bytes::LayerBytes;
use super::cache_rounding::{CacheRounding, rounding};
use super::error::Error;
use super::expert_routes::ExpertRoutes;
use super::identity::{drafter_identity, identity_with};
use super::loaded::{Loaded, load_weights};
use super::loaded_adapter::LoadedAdapter;
use super::make_cache::CacheMade;
use super::model_adapters::ModelAdapters;
use super::open::{check_kv_type, open, place, without_effect};
use super::options::LoadOptions;
use super::rank_files::samples;
use super::settings::Settings;
use super::stream::WeightsPlan;
use super::texts::{EmbeddingDefaults, embedding, task};
use crate::observe::drafter::Drafter;
use crate::ranks::leader::Leader;
use crate::request::handle::{ModelInfo, ModelTask};
use backend::{
    AdapterSet, Backend, Batch, Buffer, GroupSize, InputSums, Memory, StreamStats, TableStats,
};
use base::Profile;
use formats::Checkpoint;
use models::placement::decide_arithmetic;
use models::{Model, Ranks, WorkspaceLimits};
use std::sync::Arc;

/// A loaded model.
pub struct Runner {
    pub(super) backend: Box<dyn Backend>,
    pub(super) model: Box<dyn Model>,
    pub(crate) info: ModelInfo,
    pub(crate) settings: Settings,
    /// The groups of cached rows, the trunk first.
    pub(crate) groups: Vec<GroupSize>,
    pub(super) layer_bytes: LayerBytes,
    /// The ranks that share the model, and what tells the others what to compute.
    pub(super) ranks: Ranks,
    pub(super) leader: Option<Leader>,
    /// What its layers that draft tokens are, where it has some.
    pub(crate) drafter: Option<Drafter>,
    /// What is done with the choices of experts.
    routes: ExpertRoutes,
    /// Blocks of each group after these, for rows of drafted tokens.
    pub(crate) spare_blocks: usize,
    /// Number of state slots, 0 where no layer is recurrent.
    pub(crate) states: usize,
    pub(crate) state_every: usize,
    pub(crate) chunk: usize,
    pub(crate) limits: WorkspaceLimits,
    weights: WeightsPlan,
    /// Whether a warning has said that slots are not locked.
    lock_refused: bool,
    pub(super) check: bool,
    warnings: Vec<String>,
    adapters: ModelAdapters,
    /// The logits of the last batch and their number of rows.
    logits: Option<(Buffer, usize)>,
    /// Number of hidden states of the last batch.
    hidden: usize,
    /// Values of a row of the residual stream, or streams.
    stream_width: usize,
    /// Capacity above which a sequence has the frequencies of long ones, where the model has such.
    long_from: Option<usize>,
    /// What the model says of vectors of texts.
    pub(crate) embedding: EmbeddingDefaults,
    is_encoder: bool,
    /// The model that drafts tokens, until the engine takes it.
    pub(super) draft_model: Option<Box<Self>>,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Runner({}, {})", self.info.name, self.isa())
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
        let mut backend = open(options)?;
        let without_effect = without_effect(options, &*backend);
        let (rounding, unrounded) = rounding(config, options.rounding, options.mode)?;
        let kv_type = options.kv_type.unwrap_or(options.mode.default_kv_type());
        check_kv_type(config, kv_type, rounding == Some(CacheRounding::Native))?;
        let (placed, placement) = place(checkpoint, &*backend, options.placement.as_deref())?;
        let mut settings = Settings {
            checkpoint: identity_with(checkpoint, &samples(checkpoint, &options.ranks)?),
            mode: options.mode,
            kv_type,
            arithmetic: decide_arithmetic(&placed, &mut *backend),
            placement,
            slices: options.ranks.slices(),
            rounding,
            drafter: drafter_identity(checkpoint),
        };
        let parts = (&*backend, &placed[..]);
        let options = &agreed_options(checkpoint, parts, &mut settings, options)?;
        let (loaded, weights) = load_weights(backend, (checkpoint, placed), &settings, options)?;
        let Loaded { mut backend, model, layer_bytes, cache, chunk, limits } = loaded;
        let routes = ExpertRoutes::start(&mut *backend, config, &settings.checkpoint, options)?;
        let CacheMade { groups, spare: spare_blocks, states, context, note } = cache;
        let leader = Leader::of(&options.ranks, groups.len(), table_blocks(&groups, limits));
        let adapters = ModelAdapters::open((config, &mut *backend, &*model), (&leader, options))?;
        let embedding = embedding(checkpoint, options, &*model);
        let notes = note.into_iter().chain(unrounded).chain(without_effect);
        let info = ModelInfo {
            name: config.name.clone(),
            architecture: config.architecture.clone(),
            arithmetic: settings.arithmetic.clone(),
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
            spare_blocks,
            layer_bytes,
            ranks: options.ranks.clone(),
            leader,
            drafter: config.drafter.as_ref().map(Drafter::of_layers),
            routes,
            states,
            state_every: options.state_every,
            warnings: checkpoint.warnings().iter().cloned().chain(notes).collect(),
            chunk,
            limits,
            weights,
            lock_refused: false,
            check: options.check,
            adapters,
            logits: None,
            hidden: 0,
            stream_width: config.hidden * config.head.streams(),
            long_from: config.long_from(),
            embedding,
            is_encoder: config.is_encoder(),
            draft_model: None,
        })
    }

    /// The ranks that share the model.
    pub fn ranks(&self) -> &Ranks {
        &self.ranks
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

    /// Name of what computes: the instruction set of a CPU, or a GPU.
    pub fn isa(&self) -> String {
        self.backend.identity()
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

    /// What has happened to tables whose rows stay on disk; `None` where there are none.
    pub fn table_stats(&self) -> Option<TableStats> {
        self.backend.table_stats()
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

    /// What reading further adapters needs.
    pub fn adapter_base(&self) -> &AdapterBase {
        &self.adapters.base
    }

    /// The adapters that the model was loaded with, each with its factor.
    pub fn loaded_adapters(&self) -> &[(LoadedAdapter, f32)] {
        &self.adapters.loaded
    }

    /// The adapters of sequences that name none.
    pub(crate) fn adapters(&self) -> &AdapterSet {
        &self.adapters.applied
    }

    /// Sets the adapters of sequences that name none.
    pub fn set_adapters(&mut self, adapters: AdapterSet) {
        self.adapters.applied = adapters;
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
        Batch::with_capacity(self.limits.rows, self.table_blocks(), self.groups.len())
    }

    /// Most blocks of all block tables of a step.
    pub(crate) fn table_blocks(&self) -> usize {
        table_blocks(&self.groups, self.limits)
    }

    /// Copies the blocks and states that `batch` names, computes the batch and stores its keys and
    /// values, with the other ranks that share the model. Returns the logits `[logit rows,
    /// vocab_size]`.
    ///
    /// # Errors
    ///
    /// If a checked value is not finite or the backend or another rank fails. After an error of a
    /// rank, all ranks have to be dropped.
    pub fn forward(&mut self, batch: &Batch) -> Result<&[f32], Error> {
        self.launch(batch)?;
        self.land(batch)?;
        Ok(self.logits())
    }

    /// The first part of [`forward`](Self::forward): up to where the first of several stages hands
    /// its rows to the next. Several batches may be launched before the oldest lands.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub(crate) fn launch(&mut self, batch: &Batch) -> Result<(), Error> {
        self.launch_as(batch, true)
    }

    /// The second part of [`forward`](Self::forward), of the oldest batch that was launched: waits
    /// for its rows, and computes hidden states and logits.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub(crate) fn land(&mut self, batch: &Batch) -> Result<(), Error> {
        self.land_unrecorded(batch)?;
        if !self.is_staged() {
            self.routes.step(&mut *self.backend);
        }
        self.warn_of_unlocked();
        Ok(())
    }

    /// As [`forward`](Self::forward), of a batch of no request, whose experts no trace and no
    /// profile counts.
    pub(crate) fn forward_unrecorded(&mut self, batch: &Batch) -> Result<(), Error> {
        self.launch_as(batch, false)?;
        self.land_unrecorded(batch)
    }

    /// Computes a batch of rank 0, up to outputs that are asked for later; `is_recorded` is whether
    /// traces and profiles of experts count it.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub(crate) fn follow(&mut self, batch: &Batch, is_recorded: bool) -> Result<(), Error> {
        self.launch_as(batch, is_recorded)?;
        match (self.is_staged(), is_recorded) {
            (true, _) => Ok(()),
            (false, true) => self.land(batch),
            (false, false) => self.land_unrecorded(batch),
        }
    }

    /// As [`launch`](Self::launch); `is_recorded` is whether all ranks count the experts.
    fn launch_as(&mut self, batch: &Batch, is_recorded: bool) -> Result<(), Error> {
        assert!(batch.rows() <= self.limits.rows, "more rows than the workspace holds");
        assert!(
            batch.logit_rows().len() <= self.limits.logit_rows,
            "more logits than the workspace holds"
        );
        (self.logits, self.hidden) = (None, 0);
        if let Some(leader) = &mut self.leader {
            leader.step(batch, is_recorded).map_err(models::Error::from)?;
        }
        self.begin("copy_blocks");
        self.backend.begin(batch);
        self.backend.copy_blocks(batch.copies());
        self.backend.copy_states(batch.state_copies());
        self.model.launch(&mut *self.backend, batch, self.check)?;
        if is_recorded && self.is_staged() {
            self.routes.step(&mut *self.backend);
        }
        Ok(())
    }

    /// As [`land`](Self::land), of a batch of no request.
    pub(crate) fn land_unrecorded(&mut self, batch: &Batch) -> Result<(), Error> {
        (self.logits, self.hidden) = (None, 0);
        if self.is_staged() {
            if let Some(leader) = &mut self.leader {
                leader.land().map_err(models::Error::from)?;
            }
            self.backend.resume(batch);
        }
        let logits = self.model.land(&mut *self.backend, batch, self.check)?;
        self.logits = Some((logits, batch.logit_rows().len()));
        self.hidden = batch.hidden_rows().len();
        self.backend.fetch(logits, batch.logit_rows().len());
        self.backend.fetch(self.model.hidden(), self.hidden);
        self.backend.end()?;
        Ok(())
    }

    /// Whether this rank is one of the first of several stages, which computes outputs of a batch
    /// after later stages have had it.
    pub(crate) fn lands_later(&self) -> bool {
        self.is_staged() && self.ranks.is_first_stage()
    }

    /// Whether the last of several stages can send the outputs of all these batches before rank 0
    /// takes the first, so that neither waits for the other.
    pub(crate) fn are_posted<'a>(&self, batches: impl Iterator<Item = &'a Batch>) -> bool {
        let rows = batches.map(|batch| batch.wanted_rows().map(|rows| rows.len()).sum::<usize>());
        dist::are_posted(rows.map(|rows| rows * self.stream_width))
    }

    /// Whether stages of several ranks share the model.
    fn is_staged(&self) -> bool {
        self.ranks.stages() > 1
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

/// Most blocks of all block tables of a step.
fn table_blocks(groups: &[GroupSize], limits: WorkspaceLimits) -> usize {
    groups.len() * (limits.rows + groups[0].blocks)
}
