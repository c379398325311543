//! Which files of some folders are guarded: by their names, and as parts of the repositories that
//! are found there.
//!
//! A walk looks at the names of up to a million entries, level by level. What comes after them is
//! not looked for.

use crate::guarded_names::{
    OF_REPOSITORY, OF_WORKTREE, PLAIN_FOLDERS, RepositoryParts, is_everywhere, is_git, names,
};
use crate::open_folders::OpenFolders;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// Most entries of folders that are looked at.
pub(crate) const MAX_WALKED: usize = 1_000_000;

/// Most repositories of submodules, and levels of folders that these are looked for in.
const MAX_REPOSITORIES: usize = 1000;
const MAX_LEVELS: usize = 8;

/// The folders that are looked at. Paths in the first begin there, paths in others are absolute.
#[derive(Clone, Debug)]
pub(crate) struct GuardedFolders {
    /// The workspace.
    pub root: PathBuf,
    /// Others, which are not in there.
    pub others: Vec<PathBuf>,
    /// Most entries that are looked at.
    pub max_walked: usize,
}

/// What is guarded.
#[derive(Clone, Debug, Default)]
pub(crate) struct GuardedTrees {
    /// Files and folders, which need not exist.
    pub paths: BTreeSet<PathBuf>,
    /// Folders of repositories.
    pub repositories: BTreeSet<PathBuf>,
    /// Files that configurations of repositories include.
    pub configs: BTreeSet<PathBuf>,
    /// Whether there is more than was looked at.
    pub is_cut: bool,
}

impl GuardedFolders {
    /// The folder that has what the absolute `path` names.
    pub fn base(&self, path: &Path) -> &Path {
        self.others.iter().find(|folder| path.starts_with(folder)).unwrap_or(&self.root)
    }

    /// The path in these folders of `path`, which is absolute and has no links; `None` of one that
    /// is elsewhere, and of the folders themselves.
    pub fn inner(&self, path: &Path) -> Option<PathBuf> {
        match path.strip_prefix(&self.root) {
            Ok(inner) => (!inner.as_os_str().is_empty()).then(|| inner.to_owned()),
            Err(_) => {
                let is_inner = |folder: &PathBuf| path != folder && path.starts_with(folder);
                self.others.iter().any(is_inner).then(|| path.to_owned())
            }
        }
    }
}

impl GuardedTrees {
    /// What is guarded in the folders as they are now.
    pub fn of(folders: &GuardedFolders, open: &mut OpenFolders) -> Self {
        let mut trees = Self::default();
        let mut left = folders.max_walked;
        let none = PathBuf::new();
        for folder in std::iter::once(&none).chain(&folders.others) {
            trees.paths.extend(names().map(|name| folder.join(name)));
            trees.repositories.insert(folder.join(".git"));
            trees.walk(folders, folder, &mut left, open);
        }
        trees
    }

    fn walk(
        &mut self,
        folders: &GuardedFolders,
        first: &Path,
        left: &mut usize,
        open: &mut OpenFolders,
    ) {
        let base = folders.root.join(first);
        let mut waiting = VecDeque::from([first.to_owned()]);
        while let Some(folder) = waiting.pop_front() {
            // A folder around the workspace does not have it a second time.
            if folder == folders.root {
                continue;
            }
            let mut parts = RepositoryParts::default();
            for entry in open.entries(&base, &folders.root.join(&folder)) {
                if *left == 0 {
                    self.is_cut = true;
                    return;
                }
                *left -= 1;
                let name = entry.file_name();
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_git(&name) {
                    self.add_git(folder.join(name), is_folder);
                    continue;
                }
                parts.add(&name);
                if is_everywhere(&name) {
                    self.paths.insert(folder.join(&name));
                }
                if is_folder {
                    waiting.push_back(folder.join(name));
                }
            }
            if parts.are_all() {
                self.repositories.insert(folder);
            }
        }
    }

    /// Adds an entry named `.git`: a repository, or a file or link that names one.
    fn add_git(&mut self, path: PathBuf, is_folder: bool) {
        match is_folder {
            true => self.repositories.insert(path),
            false => self.paths.insert(path),
        };
    }

    /// Adds what the repositories have that is guarded.
    pub fn add_repositories(&mut self, folders: &GuardedFolders, open: &mut OpenFolders) {
        let mut left = MAX_REPOSITORIES;
        for repository in self.repositories.clone() {
            self.add_parts(folders, &repository, open);
            self.add_modules(folders, &repository.join("modules"), (MAX_LEVELS, &mut left), open);
        }
    }

    /// Adds the repositories below `folder`, whose names may have several parts.
    fn add_modules(
        &mut self,
        folders: &GuardedFolders,
        folder: &Path,
        (levels, left): (usize, &mut usize),
        open: &mut OpenFolders,
    ) {
        if levels == 0 {
            return;
        }
        for name in sub_folders(folders, folder, open) {
            if *left == 0 {
                self.is_cut = true;
                return;
            }
            if !PLAIN_FOLDERS.iter().any(|plain| name.as_os_str() == *plain) {
                *left -= 1;
                let repository = folder.join(name);
                self.add_parts(folders, &repository, open);
                self.add_modules(folders, &repository, (levels - 1, left), open);
            }
        }
    }

    fn add_parts(&mut self, folders: &GuardedFolders, repository: &Path, open: &mut OpenFolders) {
        self.paths.extend(OF_REPOSITORY.iter().map(|name| repository.join(name)));
        let worktrees = repository.join("worktrees");
        for name in sub_folders(folders, &worktrees, open) {
            let worktree = worktrees.join(name);
            self.paths.extend(OF_WORKTREE.iter().map(|name| worktree.join(name)));
        }
    }
}

/// The names of the folders in `folder`.
fn sub_folders(folders: &GuardedFolders, folder: &Path, open: &mut OpenFolders) -> Vec<PathBuf> {
    let path = folders.root.join(folder);
    let entries = open.entries(folders.base(&path), &path);
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| PathBuf::from(entry.file_name())).collect()
}
