//! What guarded files name: the targets of links, the folders of repositories, and the files and
//! hooks of configurations. It is guarded too where it lies in the folders.

use crate::guarded_names::is_git;
use crate::guarded_trees::{GuardedFolders, GuardedTrees};
use crate::tree_state::{FileState, TreeState};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// What one file names.
#[derive(Debug, Default)]
struct NamedFiles {
    trees: Vec<PathBuf>,
    repositories: Vec<PathBuf>,
    configs: Vec<PathBuf>,
}

/// Adds what the files of `state` name to `trees`; whether there was something new.
pub(crate) fn add_named(
    folders: &GuardedFolders,
    state: &TreeState,
    trees: &mut GuardedTrees,
) -> bool {
    let mut is_new = false;
    for (path, state) in &state.states {
        let named = named_by(folders, trees, path, state);
        for repository in named.repositories {
            is_new |= trees.repositories.insert(repository);
        }
        for config in named.configs {
            is_new |= trees.paths.insert(config.clone());
            is_new |= trees.configs.insert(config);
        }
        for tree in named.trees {
            is_new |= trees.paths.insert(tree);
        }
    }
    is_new
}

fn named_by(
    folders: &GuardedFolders,
    trees: &GuardedTrees,
    path: &Path,
    state: &FileState,
) -> NamedFiles {
    let mut files = NamedFiles::default();
    let full = folders.root.join(path);
    let (Some(folder), Some(name)) = (full.parent(), path.file_name()) else { return files };
    match state {
        FileState::Link { target } => {
            // A link to what is around it would guard everything.
            let target = named(folders, folder, target.as_os_str());
            let target = target.filter(|target| !path.starts_with(target));
            let names = if is_git(name) { &mut files.repositories } else { &mut files.trees };
            names.extend(target);
        }
        FileState::File { bytes: Some(bytes), .. } if is_git(name) => {
            let target = bytes.trim_ascii().strip_prefix(b"gitdir:").map(<[u8]>::trim_ascii);
            let target = target.map(OsStr::from_bytes);
            files.repositories.extend(target.and_then(|it| named(folders, folder, it)));
        }
        FileState::File { bytes: Some(bytes), .. } if name == "commondir" => {
            let target = OsStr::from_bytes(bytes.trim_ascii());
            files.repositories.extend(named(folders, folder, target));
        }
        FileState::File { bytes: Some(bytes), .. }
            if name == "config" || name == "config.worktree" || trees.configs.contains(path) =>
        {
            add_of_config(folders, folder, bytes, &mut files);
        }
        _ => {}
    }
    files
}

/// Adds the files that a configuration of git in `folder` includes, and the folders of its hooks.
fn add_of_config(folders: &GuardedFolders, folder: &Path, bytes: &[u8], files: &mut NamedFiles) {
    let text = String::from_utf8_lossy(bytes);
    let values: Vec<(String, String)> = text.lines().filter_map(value).collect();
    let of = |key: &'static str| {
        values.iter().filter(move |(name, _)| name == key).map(|(_, value)| OsStr::new(value))
    };
    files.configs.extend(of("path").filter_map(|value| named(folders, folder, value)));
    // Hooks are looked for from the top of the working tree on, or from the repository.
    let mut tops: Vec<PathBuf> = of("worktree").map(|value| folder.join(value)).collect();
    tops.extend([folder.to_owned(), folder.parent().unwrap_or(folder).to_owned()]);
    for value in of("hookspath") {
        files.trees.extend(tops.iter().filter_map(|top| named(folders, top, value)));
    }
}

/// The name of a line of a configuration in lower case, and its value.
fn value(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    let name = name.rsplit(']').next()?.trim().to_ascii_lowercase();
    let value = value.trim();
    let value = match value.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => value.split(['#', ';']).next()?.trim_end(),
    };
    (!value.is_empty()).then(|| (name, value.to_owned()))
}

/// The path in the folders of what `target` names from `from` on, which need not exist.
fn named(folders: &GuardedFolders, from: &Path, target: &OsStr) -> Option<PathBuf> {
    let full = match target.as_bytes().strip_prefix(b"~/") {
        Some(rest) => PathBuf::from(std::env::var_os("HOME")?).join(OsStr::from_bytes(rest)),
        None => from.join(target),
    };
    // Folders that exist may be links; what does not exist is none.
    let (existing, found) =
        full.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)))?;
    let rest = full.strip_prefix(existing).ok()?;
    let is_plain = rest.components().all(|part| matches!(part, Component::Normal(_)));
    is_plain.then(|| folders.inner(&found.join(rest)))?
}
