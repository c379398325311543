//! Loads the model of a command as a running service.

use crate::args::{FileArgs, LoadArgs, ModelArgs, PoolingArgs, SnapshotArgs};
use crate::draft_args::DraftArgs;
use crate::kv_dir::{self, KvDirArgs};
use crate::model;
use crate::output;
use crate::placement::PlacementArgs;
use crate::rank_args::RankArgs;
use crate::ranked_model::RankedModel;
use anyhow::{Context, Result};
use api::{ModelDescription, Service};
use backend::StreamStats;
use clap::builder::BoolishValueParser;
use clap::{ArgAction, Command};
use engine::metrics::steps_by_drafts;
use engine::{EngineOptions, KvMemory, LoadOptions, Runner};
use formats::Checkpoint;
use formats::Pooling;
use gannet::{Builder, Engine, KvDir};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use text::{TextAssets, ToolFormat};

/// A loaded model with its service.
#[derive(Debug)]
pub(crate) struct LoadedModel {
    /// The service.
    pub service: Service,
    /// A line about the model, its memory and how it is computed.
    pub description: String,
    engine: Engine,
    /// Whether the engine stores prefixes on disk.
    stores: bool,
    /// Whether it writes a trace of routes.
    traces_routes: bool,
    /// Whether other ranks end with it.
    leads: bool,
}

/// Most time in which an engine writes the last of what it keeps on disk.
const LAST_STORES: Duration = Duration::from_secs(15);

impl LoadedModel {
    /// Whether the engine has work when it ends: it writes to disk, or ends other ranks.
    pub fn works_at_end(&self) -> bool {
        self.stores || self.traces_routes || self.leads || self.streamed().is_some()
    }

    /// The engine of a model whose prefixes are kept on disk.
    pub fn storing(&self) -> Option<&Engine> {
        Some(&self.engine).filter(|_| self.stores)
    }

    /// What has happened to experts that are read when tokens choose them, if there are any.
    pub fn streamed(&self) -> Option<StreamStats> {
        self.service.engine.metrics.snapshot().weights
    }

    /// How many steps verified how many drafted tokens, if any did, as text.
    pub fn drafts(&self) -> Option<String> {
        let stats = self.service.engine.metrics.snapshot();
        let steps = steps_by_drafts(&stats.draft_lengths);
        (stats.drafted() > 0).then(|| format!("steps by drafted tokens: {steps}"))
    }

    /// Bytes of memory that the model takes.
    pub fn bytes(&self) -> usize {
        let memory = self.engine.memory();
        memory.weights + memory.workspace + memory.cache + memory.states
    }

    /// Ends the engine and waits for it, so that its memory is free. Clones of the service must be
    /// dropped before.
    pub fn unload(self) {
        let Self { service, engine, .. } = self;
        let name = service.info().name.clone();
        drop(service);
        if !engine.finish(LAST_STORES) {
            tracing::warn!("{name}: has not ended after {} s", LAST_STORES.as_secs());
        }
    }

    /// Ends the engine, and waits for its last work. Clones of the service must be dropped before.
    pub fn finish(self) {
        let waits = self.works_at_end();
        let Self { service, engine, stores, .. } = self;
        drop(service);
        if waits && !engine.finish(LAST_STORES) && stores {
            tracing::warn!("not all prefixes are stored");
        }
    }
}

/// Arguments for the model and for loading it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SourceArgs {
    /// The name of the model for clients, instead of its own.
    #[arg(skip)]
    name: Option<String>,
    /// Whether prefixes are kept on disk unless the arguments say otherwise.
    #[arg(skip)]
    keeps_prefixes: bool,
    /// Whether short and quickly computed prefixes are kept too.
    #[arg(skip)]
    keeps_all: bool,
    /// Maximum number of adapters in memory, unless it is the default.
    #[arg(skip)]
    max_adapters: Option<usize>,
    /// Maximum bytes of memory, where models share it.
    #[arg(skip)]
    memory: Option<usize>,
    /// How states become a vector, unless it is the checkpoint's choice.
    #[arg(skip)]
    pooling: Option<Pooling>,
    #[command(flatten)]
    plain: PlainSourceArgs,
    #[command(flatten)]
    chat: ChatFormatArgs,
    #[command(flatten)]
    kv_dir: KvDirArgs,
    #[command(flatten)]
    draft: DraftArgs,
}

/// Arguments for a model that computes vectors, and for loading it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PlainSourceArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    placement: PlacementArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    snapshots: SnapshotArgs,
    #[command(flatten)]
    ranks: RankArgs,
}

/// Arguments for chats with the model.
#[derive(Clone, Debug, clap::Args)]
struct ChatFormatArgs {
    /// Jinja template, instead of the model's own
    #[arg(long, value_name = "FILE", help_heading = "Loading")]
    chat_template: Option<PathBuf>,
    #[arg(
        long,
        value_name = "FORMAT",
        help_heading = "Loading",
        help = format!("Tool-call format, if the chat template shows none: {}", ToolFormat::names())
    )]
    tool_format: Option<&'static ToolFormat>,
    /// Generate the markup of tool calls greedily, whatever the sampling of a request: the tags
    /// around names and values, for models that write DSML (DeepSeek V3.2 and later)
    #[arg(
        long,
        value_name = "on|off",
        default_value = "on",
        value_parser = BoolishValueParser::new(),
        action = ArgAction::Set,
        hide_possible_values = true,
        help_heading = "Loading"
    )]
    greedy_structure: bool,
}

impl PlainSourceArgs {
    /// The model as ranks load it.
    pub fn ranked(&self) -> Result<RankedModel> {
        let options = self.snapshots.add_to(self.load.options(KvMemory::default()));
        let options = LoadOptions { placement: self.placement.rules()?, ..options };
        Ok(self.model.ranked(options, &self.ranks))
    }

    /// Loads the model, as [`SourceArgs::load`] does.
    pub fn load(&self, pooling: Option<Pooling>) -> Result<LoadedModel> {
        let source = SourceArgs {
            pooling,
            name: None,
            keeps_prefixes: false,
            keeps_all: false,
            max_adapters: None,
            memory: None,
            plain: self.clone(),
            chat: defaults(),
            kv_dir: defaults(),
            draft: defaults(),
        };
        source.load(EngineOptions::default(), KvMemory::Share)
    }
}

/// Arguments of which none is given.
fn defaults<A: clap::Args>() -> A {
    let matches = A::augment_args(Command::new("defaults")).get_matches_from(["defaults"]);
    A::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

impl SourceArgs {
    /// The same model under this name, if there is one.
    pub fn named(self, name: Option<String>) -> Self {
        Self { name, ..self }
    }

    /// The same with memory for this many adapters.
    pub fn holding_adapters(self, most: usize) -> Self {
        Self { max_adapters: Some(most), ..self }
    }

    /// The same in at most this many bytes of memory, if there is a limit.
    pub fn within(self, memory: Option<usize>) -> Self {
        Self { memory, ..self }
    }

    /// The same with this pooling.
    pub fn pooled(self, pooling: PoolingArgs) -> Self {
        Self { pooling: pooling.pooling, ..self }
    }

    /// The same with prefixes kept on disk, unless the arguments say otherwise.
    pub fn keeping_prefixes(self) -> Self {
        Self { keeps_prefixes: true, ..self }
    }

    /// The same with all prefixes of full blocks kept on disk, unless the arguments say otherwise.
    pub fn keeping_all_prefixes(self) -> Self {
        Self { keeps_all: true, ..self.keeping_prefixes() }
    }

    /// The same with this model.
    pub fn with_model(mut self, model: String) -> Self {
        self.plain.model.set(model);
        self
    }

    /// The same where the current folder gives no model: one that is not in `given`, the arguments
    /// of the command line alone, is the built-in one, one of the hub, or a path that looks like
    /// one.
    ///
    /// # Errors
    ///
    /// If there is no such model.
    #[cfg(feature = "agent")]
    pub fn out_of_folder(mut self, given: Option<&Self>) -> Result<Self> {
        let model = &self.plain.model;
        if !given.is_some_and(Self::names_model)
            && let Some(folder) = model.hub_folder()?
        {
            self.name = self.name.or_else(|| Some(model.name().to_string_lossy().into_owned()));
            self.plain.model.set(folder);
        }
        if !given.is_some_and(|given| given.draft.is_given()) {
            self.draft.take_from_hub(&self.plain.model.files)?;
        }
        Ok(self)
    }

    /// The name of the model on a server; `None` for the built-in model, which is no name there.
    #[cfg(feature = "agent")]
    pub fn name_on_server(&self) -> Option<String> {
        let name = self.plain.model.name();
        Some(name.to_string_lossy().into_owned()).filter(|_| name != model::BUILTIN)
    }

    /// The model as ranks load it.
    pub fn ranked(&self) -> Result<RankedModel> {
        Ok(RankedModel { kv_dir: self.kv_dir()?, ..self.plain.ranked()? })
    }

    /// The folder of the prefix cache on disk, if there is one.
    fn kv_dir(&self) -> Result<Option<KvDir>> {
        let kv_dir = self.kv_dir.folder(if self.keeps_prefixes { "auto" } else { "off" })?;
        Ok(match self.keeps_all {
            true => kv_dir.map(KvDir::keeping_all),
            false => kv_dir,
        })
    }

    /// Whether a model is named.
    pub fn names_model(&self) -> bool {
        self.plain.model.is_named()
    }

    /// The same with a context of this many tokens.
    pub fn with_context(mut self, tokens: usize) -> Self {
        self.plain.load.set_context(tokens);
        self
    }

    /// Finds the folder or file of the model, downloading it first where needed.
    pub fn locate(&self) -> Result<PathBuf> {
        self.plain.model.locate()
    }

    /// The folder or file of the model, if it is on this machine under the name that was given.
    pub fn local_path(&self) -> Option<PathBuf> {
        model::local_path(self.plain.model.name()).map(Path::to_owned)
    }

    /// Bytes of the weights of the model and of the one that drafts, as far as they are on this
    /// machine.
    pub fn weight_bytes(&self) -> u64 {
        let own = self.local_path().map_or(0, |path| formats::weight_bytes(&path));
        own + self.draft.weight_bytes()
    }

    /// What names the model, with a path made absolute; `None` for the built-in model.
    pub fn model_source(&self) -> Option<String> {
        model::lasting_name(self.plain.model.name())
    }

    /// The arguments for loading the model.
    pub fn load_args(&self) -> &LoadArgs {
        &self.plain.load
    }

    /// Loads the model and starts its engine; `kv_memory` applies where none is given.
    pub fn load(&self, engine: EngineOptions, kv_memory: KvMemory) -> Result<LoadedModel> {
        let started = Instant::now();
        let ranked = self.ranked()?;
        let ranks = ranked.join()?;
        let path = ranks.in_turn(|| self.plain.model.locate())?;
        let mut load = LoadOptions {
            placement: self.plain.placement.rules()?,
            pooling: self.pooling,
            ..self.plain.snapshots.add_to(ranks.add_to(self.plain.load.options(kv_memory)))
        };
        load.simulate_memory = [load.simulate_memory, self.memory].into_iter().flatten().min();
        let traces_routes = load.route_trace.is_some();
        let builder = self.builder().load_options(load).engine_options(engine);
        let builder = self.draft.add_to(builder, &self.plain.model.files)?;
        let builder = self.chat.tool_format.into_iter().fold(builder, Builder::tool_format);
        let builder = builder.greedy_structure(self.chat.greedy_structure);
        let builder = self.max_adapters.into_iter().fold(builder, Builder::max_adapters);
        let stores = ranked.kv_dir.is_some();
        let builder = kv_dir::digests().into_iter().fold(builder, Builder::digests);
        let builder = ranked.kv_dir.into_iter().fold(builder, Builder::kv_dir);
        let engine = builder.load(&path)?;
        let (time, threads, isa) = (started.elapsed(), engine.threads(), engine.isa());
        tracing::info!(?time, threads, isa, "loaded {}", path.display());
        engine.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        let description = describe(&engine, time);
        let service = engine.service().clone();
        let leads = ranks.are_several();
        Ok(LoadedModel { service, description, engine, stores, traces_routes, leads })
    }

    /// Describes the model at `path` without loading it.
    pub fn describe(&self, path: &Path) -> Result<ModelDescription> {
        Ok(self.builder().describe(path)?)
    }

    /// A builder with the settings that files are read with. Each is made where it is given.
    fn builder(&self) -> Builder {
        let gguf = self.plain.model.files.gguf_options();
        let name = self.name.clone().or_else(|| model::public_name(self.plain.model.name()));
        let builder = name.into_iter().fold(Engine::builder(), Builder::name);
        let builder = gguf.pre_fallback.into_iter().fold(builder, Builder::pre_fallback);
        self.chat.chat_template.iter().fold(builder, Builder::chat_template)
    }
}

fn describe(engine: &Engine, time: Duration) -> String {
    let (info, memory) = (engine.info(), engine.memory());
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    format!(
        "{} ({}): loaded in {:.2} s; weights {:.1} MiB, KV cache {:.1} MiB for {} tokens, at \
         most {} per request; {} threads, {}, {}",
        info.name,
        info.architecture,
        time.as_secs_f64(),
        mib(memory.weights),
        mib(memory.cache),
        info.cache_tokens,
        info.context_length,
        engine.threads(),
        engine.isa(),
        output::bits(engine.arithmetic()),
    )
}

/// Loads the model of `checkpoint`, and logs what the user should know about it.
pub(crate) fn runner(checkpoint: &Checkpoint, options: &LoadOptions) -> Result<Runner> {
    let runner = Runner::load(checkpoint, options)
        .with_context(|| format!("cannot load {}", checkpoint.path().display()))?;
    runner.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    Ok(runner)
}

/// The same of a model whose logits are computed.
///
/// # Errors
///
/// If the model generates no text, too.
pub(crate) fn generating_runner(checkpoint: &Checkpoint, options: &LoadOptions) -> Result<Runner> {
    let runner = runner(checkpoint, options)?;
    let generates = runner.check_generates();
    generates.with_context(|| format!("cannot use {}", checkpoint.path().display()))?;
    Ok(runner)
}

/// The tokenizer and templates that come with a checkpoint.
pub(crate) fn assets(checkpoint: &Checkpoint, files: &FileArgs) -> Result<TextAssets> {
    Ok(TextAssets::from_checkpoint(checkpoint, &files.gguf_options())?)
}
