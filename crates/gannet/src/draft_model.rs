//! A second model, or a head, that drafts tokens for the first.

use crate::error::Error;
use engine::{KvMemory, LoadOptions, PackChoice, Runner};
use formats::{Checkpoint, HeadKind, ModelFiles, OpenOptions};
use std::path::PathBuf;
use text::{GgufOptions, TextAssets};

/// Part of the memory of the model's KV cache that the draft model has for its own, unless it is
/// said, or the model has memory for one sequence.
const CACHE_PART: usize = 8;

/// A second model, or a head for the model, that drafts tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct DraftModel {
    /// Its folder or file, if there is one.
    pub path: Option<PathBuf>,
    /// Bytes of its KV cache; `None` for a part of the memory of the model's, or for one sequence
    /// if the model has memory for one.
    pub kv_memory: Option<usize>,
}

impl DraftModel {
    /// The files of a head that drafts tokens for the model, if it is one.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn head(&self) -> Result<Option<ModelFiles>, Error> {
        let Some(path) = &self.path else { return Ok(None) };
        let files = ModelFiles::open(path)?;
        Ok(HeadKind::of(&files)?.map(|_| files))
    }

    /// Loads it for the model of `runner`, which was loaded with `options` and has these `assets`.
    ///
    /// # Errors
    /// If it cannot be loaded, or has another vocabulary.
    pub fn load_for(
        &self,
        (runner, assets): (&mut Runner, &TextAssets),
        (options, running): (&LoadOptions, usize),
        gguf: &GgufOptions,
    ) -> Result<(), Error> {
        let Some(path) = &self.path else { return Ok(()) };
        let checkpoint = Checkpoint::open(path, &OpenOptions::default())?;
        let own = TextAssets::from_checkpoint(&checkpoint, gguf)
            .map_err(|source| Error::Text { path: path.clone(), source })?;
        if let Some(difference) = assets.tokenizer.difference(&own.tokenizer) {
            return Err(Error::DraftVocabulary { path: path.clone(), difference });
        }
        let trained = checkpoint.config().context;
        let options = self.options(runner, trained, (options, running));
        let draft = Runner::load(&checkpoint, &options);
        let loaded = draft.and_then(|draft| runner.draft_with(draft));
        loaded.map_err(|source| Error::Model { path: path.clone(), source })
    }

    /// Options of the draft model, which was trained for so many tokens: the options of the model,
    /// but what is about its files.
    fn options(
        &self,
        runner: &Runner,
        trained: usize,
        (options, running): (&LoadOptions, usize),
    ) -> LoadOptions {
        let most = runner.info().context_length.min(trained);
        let memory = runner.memory();
        let taken = memory.weights + memory.workspace + memory.cache + memory.states;
        let (context, kv_memory) = match (self.kv_memory, options.kv_memory) {
            (Some(bytes), _) => (None, KvMemory::Bytes(bytes)),
            (None, KvMemory::OneSequence) => (Some(most), KvMemory::OneSequence),
            (None, _) => (None, KvMemory::Bytes(memory.cache / CACHE_PART)),
        };
        LoadOptions {
            context,
            kv_memory,
            parallel: running,
            // A row for each sequence.
            logit_rows: running,
            placement: None,
            simulate_memory: options.simulate_memory.map(|all| all.saturating_sub(taken)),
            pack: match &options.pack {
                PackChoice::File(_) => PackChoice::Off,
                other => other.clone(),
            },
            route_trace: None,
            expert_profiles: None,
            adapters: Vec::new(),
            ..options.clone()
        }
    }
}
