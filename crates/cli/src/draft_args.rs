//! Arguments for a second model, or a head, that drafts tokens.

use crate::args::FileArgs;
use crate::size::bytes;
use anyhow::Result;
use clap::Args;
use gannet::Builder;
use std::ffi::OsString;

/// A second model, or a head, that drafts tokens, and its memory.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Scheduling")]
pub(crate) struct DraftArgs {
    /// What drafts tokens wherever that is faster: a second, smaller model with the same
    /// vocabulary, or a head for the model (EAGLE-3, an assistant of Gemma 4); a folder, .gguf
    /// file, or owner/name on the hub [default: none]
    #[arg(long, value_name = "MODEL")]
    draft_model: Option<OsString>,
    /// Memory of the KV cache of the draft model, such as 512MiB [default: an eighth of that of the
    /// model, or for one sequence where the model has memory for one]
    #[arg(long, value_name = "SIZE", value_parser = bytes, requires = "draft_model")]
    draft_kv_memory: Option<usize>,
}

impl DraftArgs {
    /// `builder` with these arguments. A model that is not on this machine is downloaded.
    pub fn add_to(&self, builder: Builder, files: &FileArgs) -> Result<Builder> {
        let path = self.draft_model.as_ref().map(|model| files.locate(model)).transpose()?;
        let builder = path.into_iter().fold(builder, Builder::draft_model);
        Ok(self.draft_kv_memory.into_iter().fold(builder, Builder::draft_kv_memory))
    }

    /// Takes the model from the hub if its name is no path, and never from the current folder.
    ///
    /// # Errors
    ///
    /// If there is no such model.
    #[cfg(feature = "agent")]
    pub fn take_from_hub(&mut self, files: &FileArgs) -> Result<()> {
        let found = self.draft_model.as_ref().map(|model| files.hub_folder(model)).transpose()?;
        if let Some(folder) = found.flatten() {
            self.draft_model = Some(folder.into());
        }
        Ok(())
    }

    /// Whether there is something that drafts.
    pub fn is_given(&self) -> bool {
        self.draft_model.is_some()
    }

    /// Bytes of the weights of the draft model, if it is on this machine.
    pub fn weight_bytes(&self) -> u64 {
        let path = self.draft_model.as_deref().and_then(crate::model::local_path);
        path.map_or(0, formats::weight_bytes)
    }
}
