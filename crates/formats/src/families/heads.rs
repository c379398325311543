//! Heads that draft tokens for a model, in checkpoints of their own.

use super::eagle3::{self, Eagle3Head};
use super::gemma4_assistant::{self, ASSISTANT, AssistantHead};
use super::prelude::*;
use crate::config::hf;
use crate::error::Error;
use crate::files::ModelFiles;
use crate::json::{self, CONFIG_FILE, MAX_CONFIG_BYTES};
use std::path::{Path, PathBuf};

/// A kind of head that drafts tokens for a model and is no model of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadKind {
    /// A head of EAGLE-3.
    Eagle3,
    /// An assistant of Gemma 4.
    Assistant,
}

/// What the files of a head say of it.
pub(crate) struct DraftHead {
    /// Its layers, as those of a model.
    pub model: ModelConfig,
    pub family: &'static Family,
    /// What models do not have.
    pub own: OwnSettings,
}

/// What the files of a head say that models do not have.
pub(crate) enum OwnSettings {
    Eagle3(Eagle3Head),
    Assistant(AssistantHead),
}

impl HeadKind {
    const ALL: [Self; 2] = [Self::Eagle3, Self::Assistant];

    /// Its name in checkpoints.
    pub fn name(self) -> &'static str {
        self.family().name
    }

    fn family(self) -> &'static Family {
        match self {
            Self::Eagle3 => &eagle3::EAGLE3,
            Self::Assistant => &ASSISTANT,
        }
    }

    /// The error for a head in the place of a model.
    pub(crate) fn is_no_model(self, path: &Path) -> Error {
        let problem = "expected a model, found a head that drafts tokens for one";
        Error::file(path, format!("{problem} ({}, for --draft-model)", self.name()))
    }

    /// The kind of head that files hold; `None` if they hold something else, such as a model.
    ///
    /// # Errors
    /// If the configuration cannot be read.
    pub fn of(files: &ModelFiles) -> Result<Option<Self>> {
        if let Some(gguf) = files.gguf() {
            let name = gguf.metadata().text("general.architecture")?;
            return Ok(Self::ALL.into_iter().find(|kind| kind.family().gguf.name == name));
        }
        let path = config_path(files);
        let map = json::parse_object(&json::read_text(&path, MAX_CONFIG_BYTES)?, &path)?;
        let config = Object::new(&path, &map);
        if gemma4_assistant::is_head(config)? {
            return Ok(Some(Self::Assistant));
        }
        Ok(eagle3::is_head(config)?.then_some(Self::Eagle3))
    }
}

/// Reads what the files of a head of this kind say. `name` is its display name.
pub(crate) fn read_head(kind: HeadKind, files: &ModelFiles, name: &str) -> Result<DraftHead> {
    let family = kind.family();
    if let Some(file) = files.gguf() {
        let keys = GgufKeys { metadata: file.metadata(), prefix: family.gguf.name };
        let model = gguf::read(&keys, file, family, name)?;
        let own = match kind {
            HeadKind::Eagle3 => OwnSettings::Eagle3(Eagle3Head::from_gguf(&keys)?),
            HeadKind::Assistant => OwnSettings::Assistant(AssistantHead::from_gguf(&keys, file)?),
        };
        return Ok(DraftHead { model, family, own });
    }
    let path = config_path(files);
    let map = json::parse_object(&json::read_text(&path, MAX_CONFIG_BYTES)?, &path)?;
    let mut map = if kind == HeadKind::Eagle3 { eagle3::flattened(map) } else { map };
    hf::fill(&mut map, family);
    let config = Object::new(&path, &map);
    let model = hf::read(config, family, name, |_| true)?.model;
    let own = match kind {
        HeadKind::Eagle3 => OwnSettings::Eagle3(Eagle3Head::from_hf(config)?),
        HeadKind::Assistant => OwnSettings::Assistant(AssistantHead::from_hf(config)?),
    };
    Ok(DraftHead { model, family, own })
}

fn config_path(files: &ModelFiles) -> PathBuf {
    files.folder().unwrap_or(Path::new("")).join(CONFIG_FILE)
}
