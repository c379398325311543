//! What some files of a folder are: contents, modes and links, as far as they fit into memory.

use crate::files::open_regular;
use crate::guarded_trees::GuardedFolders;
use crate::open_folders::{LOOK_INTO, OpenFolders};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most files and folders of one tree, and bytes of their contents, that are held. Files after
/// these are not known.
const MAX_ENTRIES: usize = 20_000;
pub(crate) const MAX_BYTES: u64 = 8 << 20;

/// Levels of folders of one tree.
const MAX_DEPTH: usize = 16;

/// Bits of a mode that are compared and restored.
const MODE: u32 = 0o7777;

/// What a path names.
#[derive(Clone, Debug)]
pub(crate) enum FileState {
    File {
        mode: u32,
        stamp: Stamp,
        bytes: Option<Arc<[u8]>>,
    },
    Link {
        target: PathBuf,
    },
    Folder {
        mode: u32,
    },
    Other,
    /// The system does not say.
    Unreadable,
}

/// Numbers that change when the contents of a file do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    place: [u64; 3],
    times: [i64; 4],
}

impl PartialEq for FileState {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Link { target }, Self::Link { target: to }) => target == to,
            (Self::Folder { mode }, Self::Folder { mode: to }) => mode == to,
            (Self::Other, Self::Other) | (Self::Unreadable, Self::Unreadable) => true,
            (
                Self::File { mode, stamp, bytes },
                Self::File { mode: to_mode, stamp: to_stamp, bytes: to_bytes },
            ) => {
                let is_same = match (bytes, to_bytes) {
                    (Some(bytes), Some(to)) => bytes == to,
                    _ => stamp == to_stamp,
                };
                mode == to_mode && is_same
            }
            _ => false,
        }
    }
}

impl FileState {
    /// What `path` names, without following a link; at most `limit` bytes of a file are read. It is
    /// read each time, since a mapping in memory changes some files without a trace.
    pub fn of(path: &Path, limit: u64) -> Option<Self> {
        use io::ErrorKind::{NotADirectory, NotFound};
        let found = match fs::symlink_metadata(path) {
            Ok(found) => found,
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => return None,
            Err(_) => return Some(Self::Unreadable),
        };
        let mode = found.mode() & MODE;
        Some(match found.file_type() {
            kind if kind.is_dir() => Self::Folder { mode },
            kind if kind.is_symlink() => match fs::read_link(path) {
                Ok(target) => Self::Link { target },
                Err(_) => Self::Other,
            },
            kind if kind.is_file() => {
                Self::File { mode, stamp: Stamp::of(&found), bytes: read(path, limit) }
            }
            _ => Self::Other,
        })
    }

    /// Whether it is a folder, which is nothing without its files.
    pub fn is_folder(&self) -> bool {
        matches!(self, Self::Folder { .. })
    }

    /// The contents, if they are held.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::File { bytes, .. } => bytes.as_deref(),
            _ => None,
        }
    }

    /// Makes `path` what this state says. What else it names must have been removed.
    ///
    /// # Errors
    ///
    /// If the contents are not held, or the system refuses.
    pub fn restore(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        match self {
            Self::Unreadable => Err(io::ErrorKind::PermissionDenied.into()),
            Self::Other | Self::File { bytes: None, .. } => Err(io::ErrorKind::FileTooLarge.into()),
            Self::Link { target } => symlink(target, path),
            Self::Folder { mode } => {
                fs::create_dir_all(path)?;
                fs::set_permissions(path, Permissions::from_mode(*mode))
            }
            Self::File { mode, bytes: Some(bytes), .. } => {
                crate::replace::replace(path, bytes, None)?;
                fs::set_permissions(path, Permissions::from_mode(*mode))
            }
        }
    }

    fn size(&self) -> u64 {
        self.bytes().map_or(0, |bytes| bytes.len() as u64)
    }
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        let place = [found.dev(), found.ino(), found.size()];
        let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        Self { place, times }
    }
}

fn read(path: &Path, limit: u64) -> Option<Arc<[u8]>> {
    let mut bytes = Vec::new();
    open_regular(path).ok()?.take(limit + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= limit).then(|| bytes.into())
}

/// What some trees of guarded folders are, by their paths there.
#[derive(Clone, Debug, Default)]
pub(crate) struct TreeState {
    pub states: BTreeMap<PathBuf, FileState>,
    /// Trees that are not known in full.
    pub incomplete: BTreeSet<PathBuf>,
}

impl TreeState {
    /// Adds what `tree` is, if it is not part of one that was added.
    pub fn add_tree(
        &mut self,
        folders: &GuardedFolders,
        tree: &Path,
        earlier: &Self,
        open: &mut OpenFolders,
    ) {
        if self.states.contains_key(tree) {
            return;
        }
        let mut reader =
            TreeReader { folders, earlier, open, entries: MAX_ENTRIES, bytes: MAX_BYTES };
        if !reader.add(self, tree, MAX_DEPTH) {
            self.incomplete.insert(tree.to_owned());
        }
    }

    /// Whether the tree that has `path` is known in full.
    pub fn is_complete(&self, path: &Path) -> bool {
        !self.incomplete.iter().any(|tree| path.starts_with(tree))
    }
}

/// Reads one tree.
struct TreeReader<'a> {
    folders: &'a GuardedFolders,
    earlier: &'a TreeState,
    open: &'a mut OpenFolders,
    /// What the tree may still take.
    entries: usize,
    bytes: u64,
}

impl TreeReader<'_> {
    /// Adds what `path` names with all that it has; whether that is everything.
    fn add(&mut self, found: &mut TreeState, path: &Path, depth: usize) -> bool {
        if self.entries == 0 || depth == 0 {
            return false;
        }
        let Some(state) = self.state(path) else { return true };
        self.entries -= 1;
        self.bytes = self.bytes.saturating_sub(state.size());
        let is_folder = state.is_folder();
        found.states.insert(path.to_owned(), state);
        let names = if is_folder { self.names(path) } else { Vec::new() };
        let mut is_complete = true;
        for name in names {
            // A folder that is too deep does not hide what comes after it.
            is_complete &= self.add(found, &path.join(name), depth - 1);
        }
        is_complete
    }

    fn state(&mut self, path: &Path) -> Option<FileState> {
        let full = self.folders.root.join(path);
        // What was held is compared, whatever else has been added.
        let held = self.earlier.states.get(path).map_or(0, FileState::size);
        let limit = self.bytes.max(held);
        match FileState::of(&full, limit) {
            Some(FileState::Unreadable) => {
                self.open.open(self.folders.base(&full), &full, LOOK_INTO);
                FileState::of(&full, limit)
            }
            state => state,
        }
    }

    /// The names in a folder, sorted, without examples of hooks, which git does not run.
    fn names(&mut self, folder: &Path) -> Vec<PathBuf> {
        let full = self.folders.root.join(folder);
        let has_hooks = folder.file_name().is_some_and(|name| name == "hooks");
        let entries = self.open.entries(self.folders.base(&full), &full);
        let names = entries.map(|entry| PathBuf::from(entry.file_name()));
        let is_example =
            |name: &Path| has_hooks && name.extension().is_some_and(|end| end == "sample");
        let mut names: Vec<PathBuf> =
            names.filter(|name| !is_example(name)).take(MAX_ENTRIES + 1).collect();
        names.sort();
        names
    }
}
