//! Folders of the user and folders that arguments name.

use anyhow::{Context, Result};
pub(crate) use base::user_folders::{cache, config, state};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Whether an argument names no folder: `off`, for which YAML's other words of this kind stand too.
pub(crate) fn is_off(named: &Path) -> bool {
    let is_off = |name: &str| ["off", "false", "no"].iter().any(|it| name.eq_ignore_ascii_case(it));
    named.to_str().is_some_and(is_off)
}

/// Whether one of two paths holds the other. `folder` need not exist, and `other` has no links.
#[cfg(feature = "agent")]
pub(crate) fn overlap(folder: &Path, other: &Path) -> bool {
    let path = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let mut existing = path.ancestors().filter_map(|it| Some((it, it.canonicalize().ok()?)));
    existing.next().is_some_and(|(found, whole)| {
        whole.starts_with(other) || (found == path && other.starts_with(whole))
    })
}

/// Creates a folder that only its owner may enter, and those above it, unless it exists.
///
/// # Errors
///
/// If the system gives one.
pub(crate) fn create_private(folder: &Path) -> Result<()> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    created.with_context(|| format!("cannot create {}", folder.display()))
}

/// The entries of `folder` whose names do not begin with a dot.
pub(crate) fn visible(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = folder.read_dir()?.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    let is_hidden =
        |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    paths.retain(|path| !is_hidden(path));
    Ok(paths)
}
