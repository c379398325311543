//! Loads the model of a command as a running service.

use crate::args::{FileArgs, LoadArgs, ModelArgs};
use crate::placement::PlacementArgs;
use anyhow::Result;
use api::Service;
use engine::{EngineOptions, LoadOptions, Memory};
use formats::Checkpoint;
use gannet::Engine;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use text::{TextAssets, ToolFormat};

/// A loaded model with its service.
#[derive(Debug)]
pub(crate) struct LoadedModel {
    /// The service.
    pub service: Service,
    /// Memory of weights and cache.
    pub memory: Memory,
    /// Load time.
    pub time: Duration,
    /// Threads in use.
    pub threads: usize,
    /// Instruction set in use.
    pub isa: String,
}

/// Overrides of the chat template.
#[derive(Clone, Debug, clap::Args)]
struct TemplateArgs {
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
}

/// Arguments for the model and for loading it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SourceArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    template: TemplateArgs,
    #[command(flatten)]
    placement: PlacementArgs,
    #[command(flatten)]
    load: LoadArgs,
}

impl SourceArgs {
    /// Loads the model for one sequence at a time, and starts its engine.
    pub fn load(&self, engine: EngineOptions) -> Result<LoadedModel> {
        self.load_with(self.load.options(), engine)
    }

    /// As [`load`](Self::load), for many sequences at once.
    pub fn load_for_many(&self, engine: EngineOptions) -> Result<LoadedModel> {
        self.load_with(self.load.options_for_many(), engine)
    }

    fn load_with(&self, load: LoadOptions, engine: EngineOptions) -> Result<LoadedModel> {
        let Self { model, template, placement, .. } = self;
        let started = Instant::now();
        let path = model.locate()?;
        let load = LoadOptions { placement: placement.rules()?, ..load };
        let mut builder = Engine::builder().load_options(load).engine_options(engine);
        if let Some(name) = model.public_name() {
            builder = builder.name(name);
        }
        if let Some(name) = model.files.gguf_options().pre_fallback {
            builder = builder.pre_fallback(name);
        }
        if let Some(template) = &template.chat_template {
            builder = builder.chat_template(template);
        }
        if let Some(format) = template.tool_format {
            builder = builder.tool_format(format);
        }
        let engine = builder.load(&path)?;
        let (memory, threads, isa) = (engine.memory(), engine.threads(), engine.isa().to_owned());
        let time = started.elapsed();
        tracing::info!(?time, threads, isa, "loaded {}", path.display());
        Ok(LoadedModel { service: engine.service().clone(), memory, time, threads, isa })
    }
}

/// The tokenizer and templates that come with a checkpoint.
pub(crate) fn assets(checkpoint: &Checkpoint, files: &FileArgs) -> Result<TextAssets> {
    Ok(TextAssets::from_checkpoint(checkpoint, &files.gguf_options())?)
}
