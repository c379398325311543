//! From a model argument to a running service.

use crate::args::{FileArgs, LoadArgs, ModelArgs};
use anyhow::{Context, Result};
use api::{Service, ServiceParts};
use engine::{EngineOptions, LoadOptions, Memory, Runner};
use formats::{Checkpoint, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use text::{ChatTemplate, TextAssets};

/// A model that answers.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Where to ask.
    pub service: Service,
    /// Bytes held.
    pub memory: Memory,
    /// How long loading took.
    pub time: Duration,
    /// Threads in use.
    pub threads: usize,
    /// Instruction set in use.
    pub isa: &'static str,
}

/// A chat template in place of the model's own.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TemplateArgs {
    /// Use this Jinja template instead of the model's own
    #[arg(long, value_name = "FILE", help_heading = "Loading")]
    chat_template: Option<PathBuf>,
}

/// Loads the model and starts its engine.
pub(crate) fn load(
    model: &ModelArgs,
    load: &LoadArgs,
    template: &TemplateArgs,
    engine: EngineOptions,
) -> Result<Loaded> {
    let started = Instant::now();
    let path = model.locate()?;
    let template = template.read()?;
    let checkpoint = Checkpoint::open(&path, &OpenOptions { name: model.public_name() })?;
    let (assets, runner) = load_both(&checkpoint, &model.files, &load.options())
        .with_context(|| format!("cannot load {}", path.display()))?;
    let (memory, threads, isa) = (runner.memory(), runner.threads(), runner.isa());
    // The engine ends with the last handle; nobody waits for it.
    let (engine, _) = engine::start(runner, engine);
    let service = Service::new(ServiceParts {
        engine,
        assets,
        template,
        defaults: checkpoint.generation_defaults().clone(),
        stop_ids: checkpoint.config().special.eos.clone(),
    });
    let time = started.elapsed();
    tracing::info!(?time, threads, isa, "loaded {}", path.display());
    Ok(Loaded { service, memory, time, threads, isa })
}

/// The vocabulary and the weights, side by side: both take their time.
fn load_both(
    checkpoint: &Checkpoint,
    files: &FileArgs,
    options: &LoadOptions,
) -> Result<(TextAssets, Runner)> {
    std::thread::scope(|scope| {
        let assets = scope.spawn(|| assets(checkpoint, files));
        let runner = Runner::load(checkpoint, options);
        let assets = assets.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((assets?, runner?))
    })
}

/// The tokenizer and templates that come with a checkpoint.
pub(crate) fn assets(checkpoint: &Checkpoint, files: &FileArgs) -> Result<TextAssets> {
    Ok(match checkpoint.gguf() {
        Some(gguf) => TextAssets::from_gguf(gguf, &files.gguf_options())?,
        None => TextAssets::from_folder(checkpoint.folder().unwrap_or(Path::new("")))?,
    })
}

impl TemplateArgs {
    fn read(&self) -> Result<Option<ChatTemplate>> {
        let Some(path) = &self.chat_template else { return Ok(None) };
        let context = || format!("cannot use {}", path.display());
        let source = std::fs::read_to_string(path).with_context(context)?;
        ChatTemplate::from_source(&source).map(Some).with_context(context)
    }
}
