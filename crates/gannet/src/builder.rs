//! Options for loading a model, and the way from its files to a running engine.

use crate::{Engine, Error};
use api::{ModelCard, Service, ServiceParts};
use engine::{EngineOptions, KvMemory, KvType, LoadOptions, Mode, Placement, Runner, Speculate};
use formats::{Checkpoint, OpenOptions};
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
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tiny");
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
    gguf: GgufOptions,
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
            gguf: GgufOptions::default(),
        };
        builder.parallel(PARALLEL).queue(QUEUE)
    }
}

impl Builder {
    /// Sets the number of compute threads; 0, the default, for all cores.
    pub fn threads(mut self, threads: usize) -> Self {
        self.load.threads = threads;
        self
    }

    /// Pins each thread to a CPU of its own, if the system supports it.
    pub fn pin(mut self, pin: bool) -> Self {
        self.load.pin = pin;
        self
    }

    /// Sets the context length in tokens; by default that of the model, as far as memory allows.
    pub fn context(mut self, tokens: usize) -> Self {
        self.load.context = Some(tokens);
        self
    }

    /// Sets the arithmetic: exact or fast.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.load.mode = mode;
        self
    }

    /// Sets the storage type of the KV cache; the default depends on the mode.
    pub fn kv_type(mut self, kv_type: KvType) -> Self {
        self.load.kv_type = Some(kv_type);
        self
    }

    /// Sets the memory of the KV cache; by default half of the free memory.
    pub fn kv_memory(mut self, memory: KvMemory) -> Self {
        self.load.kv_memory = memory;
        self
    }

    /// Turns on speculative decoding; off by default. The text is the same.
    pub fn speculate(mut self, speculate: Speculate) -> Self {
        self.engine.speculate = speculate;
        self
    }

    /// Sets the prefill chunk size in tokens.
    pub fn chunk(mut self, tokens: usize) -> Self {
        self.load.chunk = tokens;
        self
    }

    /// Sets the largest number of answers computed at a time; 32 by default. A larger number
    /// computes more tokens per second in total, and fewer for each answer.
    pub fn parallel(mut self, answers: usize) -> Self {
        self.engine.running = answers;
        self
    }

    /// Sets how many requests may wait before more are rejected.
    pub fn queue(mut self, requests: usize) -> Self {
        self.engine.queue = requests;
        self
    }

    /// Sets the placement rules: how each tensor is stored and computed.
    pub fn placement(mut self, rules: impl Into<Arc<Placement>>) -> Self {
        self.load.placement = Some(rules.into());
        self
    }

    /// Sets all options of loading.
    pub fn load_options(mut self, options: LoadOptions) -> Self {
        self.load = options;
        self
    }

    /// Sets all options of the engine.
    pub fn engine_options(mut self, options: EngineOptions) -> Self {
        self.engine = options;
        self
    }

    /// Sets the name that people and clients see instead of that of the model.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets a file with a Jinja chat template that replaces that of the model.
    pub fn chat_template(mut self, path: impl Into<PathBuf>) -> Self {
        self.template = Some(path.into());
        self
    }

    /// Sets the tool-call format; by default the one that the chat template shows.
    pub fn tool_format(mut self, format: &'static ToolFormat) -> Self {
        self.tool_format = Some(format);
        self
    }

    /// Reads GGUF vocabularies of an unknown `pre` type as this one, such as `llama-bpe`.
    pub fn pre_fallback(mut self, name: impl Into<String>) -> Self {
        self.gguf.pre_fallback = Some(name.into());
        self
    }

    /// Loads the model at `path`, a folder with safetensors or a GGUF file, and starts its engine.
    ///
    /// # Errors
    /// If a file is missing or malformed, or the model does not fit the options or the machine.
    pub fn load(self, path: impl AsRef<Path>) -> Result<Engine, Error> {
        let path = path.as_ref();
        let template = self.template.as_deref().map(read_template).transpose()?;
        let checkpoint = Checkpoint::open(path, &OpenOptions { name: self.name.clone() })?;
        let (assets, runner) = self.load_both(&checkpoint)?;
        let (memory, threads, isa) = (runner.memory(), runner.threads(), runner.isa().to_owned());
        let card = ModelCard::of(&checkpoint, &runner.settings().checkpoint);
        let parallel = self.engine.running.max(1);
        // The engine ends with the last handle, without a wait.
        let (engine, _) = engine::start(runner, self.engine.clone());
        let service = Service::new(ServiceParts {
            engine,
            assets,
            template,
            defaults: checkpoint.generation_defaults().clone(),
            stop_ids: checkpoint.config().special.eos.clone(),
            tool_format: self.tool_format,
            card,
            parallel,
        });
        Ok(Engine { service, memory, threads, isa, parallel })
    }

    /// Loads vocabulary and weights at the same time.
    fn load_both(&self, checkpoint: &Checkpoint) -> Result<(TextAssets, Runner), Error> {
        let path = || checkpoint.path().to_owned();
        // Every answer that is computed has a row of logits.
        let logit_rows = self.load.logit_rows.max(self.engine.logit_rows());
        let options = LoadOptions { logit_rows, ..self.load.clone() };
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
