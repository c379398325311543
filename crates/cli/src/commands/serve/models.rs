//! The models of `gannet serve --models`: a folder of them, or a YAML file.

mod files;
mod loader;

use crate::effective::EffectiveSettings;
use crate::exit::WrongUsage;
use crate::rank_args::RankChoice;
use crate::size::bytes;
use anyhow::{Context, Result, bail};
use engine::trace::TraceFiles;
use engine::{ComputeTurns, EngineOptions};
use files::{NamedSettings, in_file, in_folder};
use loader::{EntryArgs, FileLoader};
use server::{KeepAlive, ModelCollection, ModelEntry};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Arguments for serving many models.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Many models")]
pub(super) struct ModelsArgs {
    /// Serve many models, each loaded when a request names it: those of a folder, by the names of
    /// its folders and .gguf files, or the list `models` of a YAML file
    #[arg(long, value_name = "DIR|FILE.yaml", conflicts_with_all = ["model", "alias"])]
    models: Option<PathBuf>,
    /// Maximum memory of all loaded models; the least recently used are unloaded for others
    /// [default: 90 % of the memory that is available at the start]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    models_memory: Option<usize>,
    /// How long a model stays loaded without requests: seconds, or a time such as 90s, 5m or 1h30m;
    /// -1 for ever. Requests may say otherwise (`keep_alive`) [default: 5m]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    keep_alive: Option<KeepAlive>,
}

/// How long a model stays loaded without requests, unless the arguments say otherwise.
const KEEP_ALIVE: KeepAlive = KeepAlive::For(Duration::from_secs(300));

/// What the models of a server share.
#[derive(Debug)]
pub(super) struct SharedSettings<'a> {
    /// The settings of the command, which apply to models that do not say otherwise.
    pub effective: &'a EffectiveSettings,
    /// Where traces of requests go.
    pub traces: Option<&'a TraceFiles>,
    /// Whether all prefixes are kept on disk, for files of slots.
    pub keeps_all_prefixes: bool,
}

impl ModelsArgs {
    /// The models; `None` where one is served.
    ///
    /// # Errors
    /// If the folder or the file cannot be read, holds no model, or has a setting that is wrong.
    pub fn collection(&self, shared: &SharedSettings<'_>) -> Result<Option<ModelCollection>> {
        let Some(path) = &self.models else {
            if self.keep_alive.is_some() {
                tracing::warn!(
                    "--keep-alive has no effect without --models; silent streams have \
                     --sse-ping-interval"
                );
            }
            return Ok(None);
        };
        let found = if path.is_dir() { in_folder(path) } else { in_file(path) };
        let found = found.with_context(|| format!("--models {}", path.display()))?;
        let available = backend::available_memory();
        if let (Some(given), Some(there)) = (self.models_memory, available)
            && given > there
        {
            let gib = |bytes: usize| bytes as f64 / f64::from(1 << 30);
            let (given, there) = (gib(given), gib(there));
            tracing::warn!("--models-memory: {given:.1} GiB is more than the {there:.1} available");
        }
        let memory = self.models_memory.or_else(|| Some(available? / 10 * 9));
        let (turns, mut models) = (ComputeTurns::default(), Vec::<ModelEntry>::new());
        for named in found {
            let entry = entry(&named, memory, &turns, shared);
            let entry = entry.with_context(|| format!("{}: {}", path.display(), named.place))?;
            let names = || models.iter().flat_map(|it| it.aliases.iter().chain([&it.name]));
            let own = entry.aliases.iter().chain([&entry.name]);
            if let Some(twice) = own.into_iter().find(|name| names().any(|other| other == *name)) {
                bail!("{}: {}: {twice}: the name is taken", path.display(), named.place);
            }
            models.push(entry);
        }
        let keep_alive = self.keep_alive.unwrap_or(KEEP_ALIVE);
        Ok(Some(ModelCollection { models, memory, keep_alive }))
    }
}

/// The model with these settings over those of the command.
fn entry(
    named: &NamedSettings,
    memory: Option<usize>,
    turns: &ComputeTurns,
    shared: &SharedSettings<'_>,
) -> Result<ModelEntry> {
    let args = EntryArgs::of(shared.effective, &named.settings)?;
    let mut names = args.alias.clone();
    let name = named.name.clone();
    names.retain(|alias| *alias != name);
    names.dedup();
    if let Some(missing) = args.source.load_args().adapters().find(|path| !path.exists()) {
        bail!("lora: {}: no such file or folder", missing.display());
    }
    if args.source.ranked()?.ranks.choice()? != RankChoice::Alone {
        bail!(WrongUsage::new("models that take turns cannot be divided among ranks"));
    }
    let (pinned, keep_alive) = (args.pinned, args.keep_alive);
    let engine = args.engine.options(shared.traces);
    let engine = EngineOptions { turns: Some(turns.clone()), ..engine };
    let loader = FileLoader::new(name.clone(), args, engine, memory, shared.keeps_all_prefixes);
    let keep_alive = keep_alive.filter(|_| named.settings.contains_key("keep-alive"));
    Ok(ModelEntry { name, aliases: names, pinned, keep_alive, loader: Arc::new(loader) })
}
