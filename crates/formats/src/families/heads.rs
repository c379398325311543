//! Heads that draft tokens for a model, in checkpoints of their own.

use super::eagle3::{self, Eagle3Head};
use super::prelude::*;
use crate::error::Error;
use crate::files::ModelFiles;
use crate::json::{self, CONFIG_FILE, MAX_CONFIG_BYTES};
use std::path::{Path, PathBuf};

/// A kind of head that drafts tokens for a model and is no model of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadKind {
    /// A head of EAGLE-3.
    Eagle3,
}

/// What the files of a head say of it.
pub(crate) struct DraftHead {
    /// Its layers, as those of a model.
    pub model: ModelConfig,
    pub family: &'static Family,
    /// What models do not have.
    pub own: Eagle3Head,
}

impl HeadKind {
    /// Its name in checkpoints.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eagle3 => eagle3::EAGLE3.name,
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
            return Ok((name == eagle3::EAGLE3.name).then_some(Self::Eagle3));
        }
        let path = config_path(files);
        let map = json::parse_object(&json::read_text(&path, MAX_CONFIG_BYTES)?, &path)?;
        let config = Object::new(&path, &map);
        Ok(eagle3::is_head(config)?.then_some(Self::Eagle3))
    }
}

/// Reads what the files of a head of this kind say. `name` is its display name.
pub(crate) fn read_head(kind: HeadKind, files: &ModelFiles, name: &str) -> Result<DraftHead> {
    let HeadKind::Eagle3 = kind;
    let family = &eagle3::EAGLE3;
    if let Some(gguf) = files.gguf() {
        let keys = GgufKeys { metadata: gguf.metadata(), prefix: family.gguf.name };
        let model = gguf::read(&keys, gguf, family, name)?;
        let own = Eagle3Head::from_gguf(&keys)?;
        return Ok(DraftHead { model, family, own });
    }
    let path = config_path(files);
    let map = json::parse_object(&json::read_text(&path, MAX_CONFIG_BYTES)?, &path)?;
    let mut map = eagle3::flattened(map);
    crate::config::hf::fill(&mut map, family);
    let config = Object::new(&path, &map);
    let model = crate::config::hf::read(config, family, name, |_| true)?.model;
    let own = Eagle3Head::from_hf(config)?;
    Ok(DraftHead { model, family, own })
}

impl DraftHead {
    /// Checks the number of layers.
    ///
    /// # Errors
    /// If the head has another number of layers than its kind has.
    pub fn check_layers(&self, path: &Path) -> Result<()> {
        match self.model.layers.len() {
            1 => Ok(()),
            found => {
                let problem = format!("expected a head of EAGLE-3 with 1 layer, found {found}");
                Err(Error::file(path, problem))
            }
        }
    }
}

fn config_path(files: &ModelFiles) -> PathBuf {
    files.folder().unwrap_or(Path::new("")).join(CONFIG_FILE)
}
