//! A model that is loaded to be served: with its adapters, and the sampling of requests that leave
//! it open.

use crate::args::SamplingArgs;
use crate::commands::serve::adapter_folder::AdapterFolderArgs;
use crate::load::{LoadedModel, SourceArgs};
use anyhow::Result;
use api::Service;
use engine::{EngineOptions, KvMemory};

/// The arguments of one model to serve.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServedArgs<'a> {
    pub source: &'a SourceArgs,
    pub adapters: &'a AdapterFolderArgs,
    pub sampling: &'a SamplingArgs,
    /// Names that no adapter may have, besides that of the model.
    pub aliases: &'a [String],
    /// Whether all prefixes are kept on disk, for files of slots.
    pub keeps_all_prefixes: bool,
}

impl ServedArgs<'_> {
    /// Loads the model under this name, or its own, and its adapters, in at most `memory` bytes if
    /// there is a limit.
    ///
    /// # Errors
    /// If the model or an adapter cannot be loaded, or an option of sampling is out of range.
    pub fn load(
        &self,
        name: Option<String>,
        engine: EngineOptions,
        memory: Option<usize>,
    ) -> Result<(LoadedModel, Service)> {
        let source = self.source.clone().named(name).within(memory);
        let source = source.holding_adapters(self.adapters.most());
        let source = if self.keeps_all_prefixes { source.keeping_all_prefixes() } else { source };
        let model = source.load(engine, KvMemory::Share)?;
        self.sampling.check(model.service.info().vocab_size)?;
        let service = model.service.clone().with_defaults(&self.sampling.options())?;
        self.adapters.load(&service, self.aliases)?;
        Ok((model, service))
    }
}
