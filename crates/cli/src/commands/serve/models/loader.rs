//! One of many models: its settings, and how it is loaded and unloaded.

use crate::args::{EngineArgs, PoolingArgs, SamplingArgs};
use crate::commands::serve::adapter_folder::AdapterFolderArgs;
use crate::commands::serve::routes;
use crate::commands::serve::served_model::ServedArgs;
use crate::effective::EffectiveSettings;
use crate::load::{LoadedModel, SourceArgs};
use crate::settings::is_switch;
use anyhow::{Result, bail};
use api::{ModelDescription, Service};
use clap::{Arg, Args, Command, FromArgMatches};
use engine::EngineOptions;
use server::{KeepAlive, LoadError, LoadModel, RunningModel};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// The settings of one of many models.
#[derive(Clone, Debug, Args)]
pub(super) struct EntryArgs {
    /// Load the model at the start, and never unload it.
    #[arg(long)]
    pub pinned: bool,
    /// How long it stays loaded without requests.
    #[arg(long)]
    pub keep_alive: Option<KeepAlive>,
    /// Its further names.
    #[arg(long, value_delimiter = ',', value_parser = routes::name)]
    pub alias: Vec<String>,
    #[command(flatten)]
    pub adapters: AdapterFolderArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub pooling: PoolingArgs,
    #[command(flatten)]
    pub source: SourceArgs,
}

/// Settings of the command that are not those of each model.
const OF_THE_COMMAND: [&str; 2] = ["alias", "keep-alive"];

impl EntryArgs {
    /// The settings of a model: its `own` ones, and those of the command for the others.
    ///
    /// # Errors
    /// If a setting is unknown, or its value is wrong.
    pub fn of(command: &EffectiveSettings, own: &BTreeMap<String, Vec<OsString>>) -> Result<Self> {
        let parser = Self::augment_args(Command::new("model").no_binary_name(true));
        let known: BTreeMap<&str, &Arg> =
            parser.get_arguments().filter_map(|arg| Some((arg.get_long()?, arg))).collect();
        if let Some(key) = own.keys().find(|key| !known.contains_key(key.as_str())) {
            let known = known.into_keys().collect::<Vec<_>>().join(", ");
            bail!("{key}: no such setting of a model (known: name, path, {known})");
        }
        let own = own.iter().map(|(key, values)| (key.as_str(), values.as_slice()));
        let of_command = command.iter().filter(|(key, _)| !OF_THE_COMMAND.contains(key));
        let of_command = of_command.map(|(key, values): (&str, _)| (key, values));
        // Those of the model replace those of the command.
        let all: BTreeMap<&str, &[OsString]> = of_command.chain(own).collect();
        let mut texts = Vec::new();
        for (key, values) in all {
            match known.get(key) {
                Some(arg) if is_switch(arg) => texts.extend(switch(key, values)?),
                Some(_) => texts.extend(values.iter().map(|value| flag(key, value))),
                None => {}
            }
        }
        let matches = parser.clone().try_get_matches_from(texts).map_err(|error| {
            let message = error.to_string();
            let line = message.lines().next().unwrap_or_default();
            anyhow::anyhow!("{}", line.trim_start_matches("error: "))
        })?;
        Ok(Self::from_arg_matches(&matches)?)
    }
}

/// The flag `key` with a value.
fn flag(key: &str, value: &OsStr) -> OsString {
    let mut flag = OsString::from(format!("--{key}="));
    flag.push(value);
    flag
}

/// The flag `key`, if it is on.
fn switch(key: &str, values: &[OsString]) -> Result<Option<OsString>> {
    match values {
        [value] if value == "true" => Ok(Some(format!("--{key}").into())),
        [value] if value == "false" => Ok(None),
        _ => bail!("{key}: expected true or false"),
    }
}

/// Part of the memory of all models that one takes at most beside its weights, unless it says how
/// much its cache may take; half of it is for the cache.
const PART: usize = 4;

/// A model that is loaded from its files.
#[derive(Debug)]
pub(super) struct FileLoader {
    args: EntryArgs,
    engine: EngineOptions,
    /// Bytes of all models.
    memory: Option<usize>,
    keeps_all_prefixes: bool,
    name: String,
}

impl FileLoader {
    /// The model `name` with these settings, among models that take `memory` together.
    pub fn new(
        name: String,
        args: EntryArgs,
        engine: EngineOptions,
        memory: Option<usize>,
        keeps_all_prefixes: bool,
    ) -> Self {
        Self { args, engine, memory, keeps_all_prefixes, name }
    }

    fn loaded(&self, memory: Option<usize>) -> Result<LoadedFiles> {
        let (EntryArgs { source, adapters, sampling, alias: aliases, .. }, bytes) =
            (&self.args, self.file_bytes());
        let part = |all: usize| (bytes as usize).saturating_add(all / PART);
        let part = self.memory.filter(|_| !source.load_args().has_kv_memory()).map(part);
        let memory = [memory, part].into_iter().flatten().min();
        let source = &source.clone().pooled(self.args.pooling);
        let keeps_all_prefixes = self.keeps_all_prefixes;
        let served = ServedArgs { source, adapters, sampling, aliases, keeps_all_prefixes };
        let (model, service) = served.load(Some(self.name.clone()), self.engine.clone(), memory)?;
        tracing::info!("{}", model.description);
        Ok(LoadedFiles { model, service })
    }
}

impl LoadModel for FileLoader {
    fn file_bytes(&self) -> u64 {
        self.args.source.weight_bytes()
    }

    fn needs_download(&self) -> bool {
        self.args.source.local_path().is_none()
    }

    fn describe(&self) -> Result<ModelDescription, LoadError> {
        let source = &self.args.source;
        let Some(path) = source.local_path() else {
            let message = "it is not on this machine yet, and is downloaded when a request for an \
                           answer names it";
            let message = message.to_owned();
            return Err(LoadError { message, needs_memory: false });
        };
        let named = source.clone().named(Some(self.name.clone()));
        let mut known = named.describe(&path).map_err(load_error)?;
        known.defaults = self.args.sampling.options().over(&known.defaults);
        Ok(known)
    }

    fn load(&self, memory: Option<usize>) -> Result<Box<dyn RunningModel>, LoadError> {
        Ok(Box::new(self.loaded(memory).map_err(load_error)?))
    }
}

/// The error with its causes.
fn load_error(error: anyhow::Error) -> LoadError {
    let needs_memory = error.chain().any(|cause| {
        let engine = match cause.downcast_ref::<gannet::Error>() {
            Some(gannet::Error::Model { source, .. }) => Some(source),
            _ => cause.downcast_ref::<engine::Error>(),
        };
        engine.is_some_and(engine::Error::needs_memory)
    });
    LoadError { message: format!("{error:#}"), needs_memory }
}

/// A model that is loaded.
#[derive(Debug)]
struct LoadedFiles {
    model: LoadedModel,
    /// Its service with the sampling of its settings.
    service: Service,
}

impl RunningModel for LoadedFiles {
    fn service(&self) -> &Service {
        &self.service
    }

    fn bytes(&self) -> usize {
        self.model.bytes()
    }

    fn unload(self: Box<Self>) {
        let Self { model, service } = *self;
        drop(service);
        model.unload();
    }
}
