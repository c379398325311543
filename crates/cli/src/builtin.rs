//! The built-in model, which is part of the binary and unpacked once into the user's cache.
//!
//! Invariant: a folder is used only if its files hold exactly what the binary holds.

use anyhow::{Context, Result};
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use tiny::FILES;

/// The name of the model.
pub(crate) const NAME: &str = "gannet-tiny";

/// Whether a path is a folder that the model was unpacked in.
pub(crate) fn is_unpacked(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // The hash of the files takes longest.
    name.contains(FOLDER) && path.is_dir() && name.ends_with(&folder_name())
}

/// What the names of folders that the model is unpacked in begin with.
const FOLDER: &str = "builtin-";

fn folder_name() -> String {
    format!("{FOLDER}{:016x}", hash())
}

/// The folder of the model, unpacked first where it is missing or broken.
pub(crate) fn folder() -> Result<PathBuf> {
    let name = folder_name();
    let cached = crate::folders::cache().map(|cache| cache.join(&name));
    if let Some(folder) = cached {
        match unpack(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) => tracing::info!("cannot use {}: {error:#}", folder.display()),
        }
    }
    let folder = std::env::temp_dir().join(format!("gannet-{name}"));
    unpack(&folder).context("cannot unpack the built-in model")?;
    Ok(folder)
}

/// A hash that tells the models of different versions apart.
fn hash() -> u64 {
    let mut hasher = DefaultHasher::new();
    FILES.iter().for_each(|(_, bytes)| hasher.write(bytes));
    hasher.finish()
}

fn unpack(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    FILES.iter().try_for_each(|(name, bytes)| unpack_file(&folder.join(name), bytes))
}

/// Writes a temporary file and renames it, so that other processes see the whole file or none.
fn unpack_file(path: &Path, bytes: &[u8]) -> Result<()> {
    if std::fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    let temporary = path.with_added_extension(format!("{}.incomplete", std::process::id()));
    let written =
        std::fs::write(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, path));
    written
        .inspect_err(|_| drop(std::fs::remove_file(&temporary)))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_and_missing_files_are_written_again() {
        let folder = tempfile::tempdir().unwrap();
        unpack(folder.path()).unwrap();
        std::fs::write(folder.path().join("config.json"), "{").unwrap();
        std::fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
        unpack(folder.path()).unwrap();
        for (name, bytes) in FILES {
            assert_eq!(&std::fs::read(folder.path().join(name)).unwrap(), bytes, "{name}");
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), FILES.len());
    }
}
