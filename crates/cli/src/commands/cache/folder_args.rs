//! The folder that a command looks at.

use crate::{folders, kv_dir};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// The folder that a command looks at.
#[derive(Debug, clap::Args)]
pub(super) struct FolderArgs {
    /// Folder of the prefixes: a path, or auto for kv in the user's cache folder
    #[arg(long, value_name = "DIR|auto", default_value = kv_dir::AUTO)]
    kv_dir: PathBuf,
}

impl FolderArgs {
    /// The folder, which need not exist where none is named.
    ///
    /// # Errors
    ///
    /// If it is off, or a named one does not exist.
    pub fn folder(&self) -> Result<PathBuf> {
        let folder = self.folder_to_write()?;
        if self.kv_dir != Path::new(kv_dir::AUTO) && !folder.is_dir() {
            bail!("--kv-dir: {}: no such folder", folder.display());
        }
        Ok(folder)
    }

    /// The folder, which need not exist.
    ///
    /// # Errors
    ///
    /// If it is off.
    pub fn folder_to_write(&self) -> Result<PathBuf> {
        if folders::is_off(&self.kv_dir) {
            bail!("--kv-dir is off: name a folder");
        }
        kv_dir::folder(&self.kv_dir)
    }
}
