//! The cache on disk, laid out as `huggingface_hub` does it:
//! `models--owner--name/{blobs/ETAG, refs/REVISION, snapshots/COMMIT/FILE -> blobs/ETAG}`.
//!
//! Invariant: a file appears under `snapshots` only when it is complete.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::reference::{ModelRef, is_component};

/// The cached files of one repository.
#[derive(Debug)]
pub(crate) struct RepoCache {
    root: PathBuf,
    locks: PathBuf,
}

impl RepoCache {
    pub(crate) fn new(cache: &Path, model: &ModelRef) -> Self {
        let folder = format!("models--{}--{}", model.owner, model.name);
        Self { root: cache.join(&folder), locks: cache.join(".locks").join(folder) }
    }

    /// The commit of `revision` when it was last resolved.
    pub(crate) fn commit(&self, revision: &str) -> Option<String> {
        if self.snapshot(revision).is_dir() && is_component(revision) {
            return Some(revision.to_owned());
        }
        let commit = fs::read_to_string(self.root.join("refs").join(revision)).ok()?;
        let commit = commit.trim();
        is_component(commit).then(|| commit.to_owned())
    }

    /// Records the commit of `revision`.
    pub(crate) fn remember(&self, revision: &str, commit: &str) -> Result<(), Error> {
        if revision == commit {
            return Ok(());
        }
        let path = self.root.join("refs").join(revision);
        create_parent(&path)?;
        fs::write(&path, commit).map_err(Error::io("write", &path))
    }

    /// The folder of a commit's files.
    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.root.join("snapshots").join(commit)
    }

    /// All cached files of a commit, relative to its folder.
    pub(crate) fn list(&self, commit: &str) -> Vec<String> {
        let mut files = Vec::new();
        list_into(&self.snapshot(commit), "", 0, &mut files);
        files.sort();
        files
    }

    /// Path of the content with this etag.
    pub(crate) fn blob(&self, etag: &str) -> PathBuf {
        self.root.join("blobs").join(etag)
    }

    /// Locks the content against other processes that download it.
    pub(crate) fn lock(&self, etag: &str) -> Result<File, Error> {
        let path = self.locks.join(format!("{etag}.lock"));
        create_parent(&path)?;
        let file = File::create(&path).map_err(Error::io("create", &path))?;
        file.lock().map_err(Error::io("lock", &path))?;
        Ok(file)
    }

    /// Links a complete blob into the snapshot of `commit`.
    pub(crate) fn link(&self, commit: &str, file: &str, etag: &str) -> Result<(), Error> {
        let path = self.snapshot(commit).join(file);
        create_parent(&path)?;
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path).map_err(Error::io("replace", &path))?;
        }
        let depth = file.split('/').count() + 1;
        let target = PathBuf::from("../".repeat(depth)).join("blobs").join(etag);
        link(&self.blob(etag), &target, &path).map_err(Error::io("link", &path))
    }
}

#[cfg(unix)]
fn link(_blob: &Path, relative: &Path, path: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(relative, path)
}

/// Other systems require a privilege for symbolic links.
#[cfg(not(unix))]
fn link(blob: &Path, _relative: &Path, path: &Path) -> std::io::Result<()> {
    fs::hard_link(blob, path).or_else(|_| fs::copy(blob, path).map(drop))
}

pub(crate) fn create_parent(path: &Path) -> Result<(), Error> {
    let Some(parent) = path.parent() else { return Ok(()) };
    fs::create_dir_all(parent).map_err(Error::io("create", parent))
}

fn list_into(folder: &Path, prefix: &str, depth: usize, files: &mut Vec<String>) {
    const MAX_DEPTH: usize = 8;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Some(name) = entry.file_name().to_str().map(|n| format!("{prefix}{n}")) else {
            continue;
        };
        // A link to a missing blob is skipped.
        if path.is_file() {
            files.push(name);
        } else if path.is_dir() && depth < MAX_DEPTH {
            list_into(&path, &format!("{name}/"), depth + 1, files);
        }
    }
}
