//! Options for loading a model, and the way from its files to a running engine.

use crate::draft_model::DraftModel;
use crate::engine::Engine;
use crate::error::Error;
use crate::kv_dir::KvDir;
use crate::prefixes::StoredPrefixes;
use crate::setters::setters;
use api::{
    Adapters, ModelCard, ModelDescription, ModelIdentity, PrefixFiles, Service, ServiceParts,
    TextParts,
};
use backend::{Bits, DeviceChoice, Mode};
use engine::trace::TraceSettings;
use engine::{
    AdapterSource, EngineOptions, KvMemory, LoadOptions, PackChoice, ProfileUse, Runner, Speculate,
    WeightsMemory,
};
use formats::{Checkpoint, ModelFiles, OpenOptions};
use kernels::kv::KvType;
use models::placement::Placement;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use text::{ChatTemplate, GgufOptions, TextAssets, ToolFormat};

/// Default number of answers computed at a time.
const PARALLEL: usize = 32;
/// Default number of requests that may wait; callers wait for their answers, which bounds it.
const QUEUE: usize = 1 << 16;

/// Options for loading a model. The defaults suit most machines.
///
/// ```
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
/// use gannet::{Engine, Mode};
///
/// let engine = Engine::builder().threads(1).context(512).mode(Mode::Exact).load(path)?;
/// assert_eq!(engine.info().context_length, 512);
/// # Ok::<(), gannet::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    load: LoadOptions,
    engine: EngineOptions,
    name: Option<String>,
    template: Option<PathBuf>,
    tool_format: Option<&'static ToolFormat>,
    greedy_structure: bool,
    gguf: GgufOptions,
    kv_dir: Option<KvDir>,
    digests: Option<PathBuf>,
    max_adapters: usize,
    draft_model: DraftModel,
}

impl Default for Builder {
    fn default() -> Self {
        let builder = Self {
            // Memory for many answers at once and for the prefix cache.
            load: LoadOptions { kv_memory: KvMemory::Share, ..LoadOptions::default() },
            engine: EngineOptions::default(),
            name: None,
            template: None,
            tool_format: None,
            greedy_structure: true,
            gguf: GgufOptions::default(),
            kv_dir: None,
            digests: None,
            max_adapters: api::DEFAULT_ADAPTERS,
            draft_model: DraftModel::default(),
        };
        builder.parallel(PARALLEL).queue(QUEUE)
    }
}

impl Engine {
    /// Loads the model at `path`: a folder with safetensors and their JSON files, or a GGUF file.
    ///
    /// ```no_run
    /// let engine = gannet::Engine::load("models/Qwen3-0.6B-Q8_0.gguf")?;
    /// # Ok::<(), gannet::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the model cannot be loaded. The error names the file and the problem:
    ///
    /// ```
    /// let error = gannet::Engine::load("no/such/model.gguf").unwrap_err();
    /// assert!(error.to_string().contains("no/such/model.gguf"));
    /// ```
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().load(path)
    }

    /// Returns a builder for other options than the defaults.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    setters! {
        /// Sets the device that computes; by default the CPU. [`device`](crate::device) finds one
        /// by name.
        device(device: DeviceChoice): |it| it.load.device = device;
        /// Sets the most bytes of the device's memory; by default all of it.
        device_memory(bytes: usize): |it| it.load.device_memory = Some(bytes);
        /// Sets the number of compute threads; 0, the default, for all cores.
        threads(threads: usize): |it| it.load.threads = threads;
        /// Pins each thread to a CPU of its own, if the system supports it.
        pin(pin: bool): |it| it.load.pin = pin;
        /// Binds threads to NUMA nodes, each of which computes a fixed part of every product, if
        /// the system supports it.
        numa(numa: bool): |it| it.load.numa = numa;
        /// Sets the context length in tokens; by default that of the model, as far as memory
        /// allows.
        context(tokens: usize): |it| it.load.context = Some(tokens);
        /// Sets the compute mode: exact or fast.
        mode(mode: Mode): |it| it.load.mode = mode;
        /// Sets the bits of answers: portable, which every CPU computes, or fastest, the default:
        /// BF16 and FP8 weights are multiplied in BF16 where this CPU is faster with it.
        bits(bits: Bits): |it| it.load.bits = bits;
        /// Sets the storage type of the KV cache; the default depends on the mode.
        kv_type(kv_type: KvType): |it| it.load.kv_type = Some(kv_type);
        /// Sets the memory of the KV cache; by default half of the free memory.
        kv_memory(memory: KvMemory): |it| it.load.kv_memory = memory;
        /// Sets the memory in bytes for the states of models that keep some, such as gated linear
        /// attention; by default two for each answer computed at a time, at most a quarter of the
        /// free memory.
        state_memory(bytes: usize): |it| it.load.state_memory = Some(bytes);
        /// Sets the number of prompt tokens between snapshots of states, besides those where
        /// messages end; 0 for none.
        state_every(tokens: usize): |it| it.load.state_every = tokens;
        /// Sets the folder in which computed prefixes are kept; none by default.
        kv_dir(folder: KvDir): |it| it.kv_dir = Some(folder);
        /// Sets the file that remembers digests of weights from run to run, for receipts; none by
        /// default.
        digests(path: impl Into<PathBuf>): |it| it.digests = Some(path.into());
        /// How tokens are drafted; by default as many as make it faster. The text is the same.
        speculate(speculate: Speculate): |it| it.engine.speculate = speculate;
        /// Sets the memory in bytes of earlier prompts and answers from which tokens are drafted;
        /// 64 MiB by default, 0 for none.
        draft_memory(bytes: usize): |it| it.engine.draft_memory = bytes;
        /// Sets what drafts tokens: a second, smaller model with the same vocabulary, or a head for
        /// the model (EAGLE-3, an assistant of Gemma 4); none by default.
        draft_model(path: impl Into<PathBuf>): |it| it.draft_model.path = Some(path.into());
        /// Sets the memory in bytes of the KV cache of the draft model; by default an eighth of
        /// that of the model, or for one sequence where the model has memory for one.
        draft_kv_memory(bytes: usize): |it| it.draft_model.kv_memory = Some(bytes);
        /// Sets the prefill chunk size in tokens; 512 by default, 4096 where weights are streamed.
        chunk(tokens: usize): |it| it.load.chunk = Some(tokens);
        /// Sets the largest number of answers computed at a time; 32 by default. A larger number
        /// computes more tokens per second in total, and fewer for each answer.
        parallel(answers: usize): |it| it.engine.running = answers;
        /// Sets how many requests may wait before more are rejected.
        queue(requests: usize): |it| it.engine.queue = requests;
        /// Sets the placement rules: how each tensor is stored and computed.
        placement(rules: impl Into<Arc<Placement>>): |it| it.load.placement = Some(rules.into());
        /// Sets which file of packed weights, as `gannet pack` writes them, is used; by default
        /// none.
        weights_pack(pack: PackChoice): |it| it.load.pack = pack;
        /// Sets the memory for weights; by default all of them if they fit beside the KV cache.
        /// Weights beyond it are read from disk when they are needed, experts when tokens choose
        /// them.
        weights_memory(memory: WeightsMemory): |it| it.load.weights_memory = memory;
        /// Sets the most bytes of memory for rows of tables that stay in the file, such as those of
        /// n-grams; by default 1 GiB.
        table_memory(bytes: usize): |it| it.load.table_memory = bytes;
        /// Sets the profiles that tell which experts are read at the start where not all are in
        /// memory; by default none.
        expert_profiles(profiles: ProfileUse): |it| it.load.expert_profiles = Some(profiles);
        /// Sets the file for a trace of which experts tokens choose; by default none.
        route_trace(path: impl Into<PathBuf>): |it| it.load.route_trace = Some(path.into());
        /// Sets the most bytes of memory that count as available, for trials; by default all that
        /// are.
        simulate_memory(bytes: usize): |it| it.load.simulate_memory = Some(bytes);
        /// Sets the low-rank adapters that answers are computed with; by default none.
        adapters(adapters: Vec<AdapterSource>): |it| it.load.adapters = adapters;
        /// Sets the largest number of adapters in memory; 64 by default.
        max_adapters(adapters: usize): |it| it.max_adapters = adapters;
        /// Sets all options of loading, for the program: they change with every version.
        #[doc(hidden)]
        load_options(options: LoadOptions): |it| it.load = options;
        /// Sets all options of the engine, for the program: they change with every version.
        #[doc(hidden)]
        engine_options(options: EngineOptions): |it| it.engine = options;
        /// Sets the name that people and clients see instead of that of the model.
        name(name: impl Into<String>): |it| it.name = Some(name.into());
        /// Sets a file with a Jinja chat template that replaces that of the model.
        chat_template(path: impl Into<PathBuf>): |it| it.template = Some(path.into());
        /// Sets the tool-call format; by default the one that the chat template shows.
        tool_format(format: &'static ToolFormat): |it| it.tool_format = Some(format);
        /// Sets whether the markup of tool calls is generated greedily, whatever the sampling of
        /// the request, in formats that have a tracker of it (DSML); on by default.
        greedy_structure(greedy: bool): |it| it.greedy_structure = greedy;
        /// Reads GGUF vocabularies of an unknown `pre` type as this one, such as `llama-bpe`.
        pre_fallback(name: impl Into<String>): |it| it.gguf.pre_fallback = Some(name.into());
    }

    /// Returns all options of loading and of the engine, for callers that change any of them.
    #[doc(hidden)]
    pub fn options(&self) -> (&LoadOptions, &EngineOptions) {
        (&self.load, &self.engine)
    }

    /// Loads the model at `path`, a folder with safetensors or a GGUF file, and starts its engine.
    ///
    /// # Errors
    /// If a file is missing or malformed, or the model does not fit the options or the machine.
    pub fn load(self, path: impl AsRef<Path>) -> Result<Engine, Error> {
        let path = path.as_ref();
        let template = self.template.as_deref().map(read_template).transpose()?;
        let head = self.draft_model.head()?;
        let (checkpoint, (assets, mut runner)) = self.load_with_drafter(path, head.as_ref())?;
        let parallel = self.engine.running.max(1);
        if head.is_none() {
            let model = (&mut runner, &assets);
            self.draft_model.load_for(model, (&self.load, parallel), &self.gguf)?;
        }
        let (memory, threads, isa) = (runner.memory_of_both(), runner.threads(), runner.isa());
        let draft = runner.draft_model().map_or(&[][..], Runner::warnings);
        let warnings = [runner.warnings(), draft].concat();
        let card = ModelCard::of(&checkpoint, &runner.settings().checkpoint);
        let mut options = self.engine.clone();
        options.disk = self.kv_dir.as_ref().map(|it| it.open(&checkpoint)).transpose()?;
        let prefixes = StoredPrefixes::of(options.disk.as_ref(), &runner);
        let (base, loaded) = (runner.adapter_base().clone(), runner.loaded_adapters());
        let adapters = Adapters::new(base, loaded, self.max_adapters)
            .map_err(|source| Error::Adapters { path: path.to_owned(), source })?;
        let settings = TraceSettings::of(&runner);
        let identity = ModelIdentity::new(settings, checkpoint.weight_files(), self.digests);
        let (engine, thread) = engine::start(runner, options);
        let mut service = Service::new(ServiceParts {
            engine,
            assets,
            template,
            defaults: checkpoint.generation_defaults().clone(),
            stop_ids: checkpoint.config().special.eos.clone(),
            tool_format: self.tool_format,
            card,
            parallel,
        });
        service.greedy_structure = self.greedy_structure;
        service.adapters = adapters;
        service.identity = Some(Arc::new(identity));
        service.prefixes = prefixes.clone().ok().map(|it| Arc::new(it) as Arc<dyn PrefixFiles>);
        let thread = Arc::new(thread);
        Ok(Engine { service, memory, threads, isa, parallel, warnings, prefixes, thread })
    }

    /// Describes the model at `path` from its files, without loading it.
    ///
    /// # Errors
    /// If a file is missing or malformed.
    pub fn describe(&self, path: impl AsRef<Path>) -> Result<ModelDescription, Error> {
        let path = path.as_ref();
        let template = self.template.as_deref().map(read_template).transpose()?;
        let checkpoint = Checkpoint::open(
            path,
            &OpenOptions { name: self.name.clone(), ..OpenOptions::default() },
        )?;
        let assets = TextAssets::from_checkpoint(&checkpoint, &self.gguf)
            .map_err(|source| Error::Text { path: path.to_owned(), source })?;
        let text = TextParts { assets: &assets, template: template.as_ref() };
        let config = checkpoint.config();
        let eos = &config.special.eos;
        Ok(ModelDescription::of(
            ModelCard::of(&checkpoint, &engine::identity(&checkpoint)),
            config.architecture.clone(),
            config.vocab,
            text,
            text.defaults(checkpoint.generation_defaults(), eos),
        ))
    }

    /// Loads the model with what drafts from its states: a head, or layers of multi-token
    /// prediction, which `auto` has if all weights fit in memory with them.
    fn load_with_drafter(
        &self,
        path: &Path,
        head: Option<&ModelFiles>,
    ) -> Result<(Checkpoint, (TextAssets, Runner)), Error> {
        let open = || {
            let opened = engine::open_checkpoint(path, self.name.clone(), &self.load.ranks);
            opened.map_err(|source| Error::Model { path: path.to_owned(), source })
        };
        let mut checkpoint = open()?;
        match (head, self.engine.speculate) {
            (Some(head), _) => checkpoint = checkpoint.with_head(head)?,
            (None, Speculate::Mtp(_)) => checkpoint = checkpoint.with_mtp()?,
            (None, Speculate::Auto(_)) if self.may_add_layers(&checkpoint) => {
                let with_layers = checkpoint.with_mtp().map_err(Error::from);
                let load = |it| self.load_both(&it, true).map(|loaded| (it, loaded));
                match with_layers.and_then(load) {
                    Ok(loaded) => return Ok(loaded),
                    Err(error) => tracing::info!("no layers of the model draft tokens: {error}"),
                }
                checkpoint = open()?;
            }
            _ => {}
        }
        let loaded = self.load_both(&checkpoint, false)?;
        Ok((checkpoint, loaded))
    }

    /// Whether layers of multi-token prediction may be loaded although no setting names them.
    fn may_add_layers(&self, checkpoint: &Checkpoint) -> bool {
        let alone = !self.load.ranks.are_several();
        checkpoint.mtp_layers() > 0 && self.draft_model.path.is_none() && alone
    }

    /// Loads vocabulary and weights at the same time. With `whole`, fails if not all weights fit
    /// in memory.
    fn load_both(
        &self,
        checkpoint: &Checkpoint,
        whole: bool,
    ) -> Result<(TextAssets, Runner), Error> {
        let path = || checkpoint.path().to_owned();
        // Every answer that is computed has a row of logits.
        let logit_rows = self.load.logit_rows.max(self.engine.logit_rows());
        let parallel = self.engine.running.max(1);
        let options = LoadOptions { logit_rows, parallel, whole, ..self.load.clone() };
        std::thread::scope(|scope| {
            let assets = scope.spawn(|| TextAssets::from_checkpoint(checkpoint, &self.gguf));
            let runner = Runner::load(checkpoint, &options);
            let assets = assets.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let assets = assets.map_err(|source| Error::Text { path: path(), source })?;
            Ok((assets, runner.map_err(|source| Error::Model { path: path(), source })?))
        })
    }
}

fn read_template(path: &Path) -> Result<ChatTemplate, Error> {
    let wrong = |source: Box<dyn std::error::Error + Send + Sync>| {
        let path = path.to_owned();
        Error::Template { path, source }
    };
    let source = std::fs::read_to_string(path).map_err(|error| wrong(error.into()))?;
    ChatTemplate::from_source(&source).map_err(|error| wrong(error.into()))
}
