//! The built-in model, which is part of the binary and unpacked once into the user's cache.

use crate::folders;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

pub(crate) use tiny::NAME;

/// Whether a path is a folder that the model was unpacked in.
pub(crate) fn is_unpacked(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // The hash of the files takes longest.
    name.contains(tiny::FOLDER) && path.is_dir() && name.ends_with(&tiny::folder_name())
}

/// The folder of the model, unpacked first where it is missing or broken.
pub(crate) fn folder() -> Result<PathBuf> {
    let unpacked = tiny::unpack_below(folders::cache(), |folder, error| {
        tracing::info!("cannot use {}: {error}", folder.display());
    });
    unpacked.context("cannot unpack the built-in model")
}
