//! The adapters that `gannet serve` offers beside the model.

use crate::folders;
use crate::size::count;
use anyhow::{Context, Result, bail};
use api::{DEFAULT_ADAPTERS, Service};
use server::ServerOptions;
use std::path::{Path, PathBuf};

/// Arguments for adapters.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Adapters")]
pub(super) struct AdapterFolderArgs {
    /// Load all low-rank adapters in this folder: folders of PEFT and .gguf files. Requests choose
    /// one by its name as model, alone or behind the name of the model and a colon
    #[arg(long, value_name = "DIR")]
    lora_dir: Option<PathBuf>,
    /// Maximum number of adapters in memory
    #[arg(long, value_name = "N", default_value_t = DEFAULT_ADAPTERS, value_parser = count)]
    max_loras: usize,
    /// Take POST /v1/load_lora_adapter, /v1/unload_lora_adapter and /lora-adapters, with which a
    /// client loads adapters from paths on this machine
    #[arg(long)]
    allow_lora_updates: bool,
}

impl AdapterFolderArgs {
    /// Maximum number of adapters in memory.
    pub fn most(&self) -> usize {
        self.max_loras
    }

    /// These arguments over `options`.
    pub fn over(&self, options: ServerOptions) -> ServerOptions {
        ServerOptions { adapter_updates: self.allow_lora_updates, ..options }
    }

    /// Loads the adapters of the folder, and reserves the names of the model, so that no adapter
    /// takes one.
    pub fn load(&self, service: &Service, aliases: &[String]) -> Result<()> {
        let names = [service.info().name.clone()].into_iter().chain(aliases.iter().cloned());
        service.adapters.reserve(names)?;
        let Some(folder) = &self.lora_dir else { return Ok(()) };
        for path in adapters_in(folder)? {
            let added = service.adapters.add(None, &path);
            let added = added.with_context(|| format!("--lora-dir {}", folder.display()))?;
            tracing::info!(adapter = added.name, rank = added.rank(), "loaded");
        }
        Ok(())
    }
}

/// The folders and `.gguf` files in `folder`, sorted by name.
fn adapters_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = folders::visible(folder)
        .with_context(|| format!("--lora-dir: cannot list {}", folder.display()))?;
    found.retain(|path| {
        let is_gguf = path.extension().is_some_and(|end| end == "gguf") && path.is_file();
        path.is_dir() || is_gguf
    });
    if found.is_empty() {
        bail!("--lora-dir {}: expected folders or .gguf files, found none", folder.display());
    }
    found.sort();
    Ok(found)
}
