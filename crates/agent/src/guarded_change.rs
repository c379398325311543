//! A change of a guarded file.

use crate::difference::difference;
use crate::open_folders::remove_folder;
use crate::tree_state::FileState;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of a file, and of files of a new folder, whose difference is shown.
const MAX_SHOWN_BYTES: usize = 256 << 10;
const MAX_SHOWN_TEXT: usize = 64 << 10;

/// A change of a guarded file that was undone. A folder that is new is one change with all that it
/// has.
#[derive(Clone, Debug)]
pub struct GuardedChange {
    /// The file, from the workspace on, or in full if it is in another folder.
    pub path: PathBuf,
    /// Whether the file is as it was before. If not, its contents were not held or the system
    /// refused.
    pub is_undone: bool,
    pub(crate) before: Option<FileState>,
    pub(crate) after: Option<FileState>,
    /// What a new folder has, by paths in order.
    pub(crate) within: Vec<(PathBuf, FileState)>,
    /// Whether that is everything.
    pub(crate) is_whole: bool,
}

impl GuardedChange {
    /// `created`, `changed` or `removed`.
    pub fn kind(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "created",
            (_, None) => "removed",
            _ => "changed",
        }
    }

    /// What the change is of: the file of a new folder that has one.
    pub fn name(&self) -> &Path {
        let mut files = self.within.iter().filter(|(_, state)| !state.is_folder());
        match (files.next(), files.next()) {
            (Some((file, _)), None) if self.is_whole => file,
            _ => &self.path,
        }
    }

    /// The unified difference of the contents, the targets of links or the modes.
    pub fn difference(&self) -> String {
        let mut text = String::new();
        if self.within.is_empty() {
            let (before, after) = (shown(self.before.as_ref()), shown(self.after.as_ref()));
            return difference(&self.path.to_string_lossy(), &before, &after);
        }
        for (path, state) in self.within.iter().filter(|(_, state)| !state.is_folder()) {
            if text.len() > MAX_SHOWN_TEXT {
                break;
            }
            text.push_str(&difference(&path.to_string_lossy(), b"", &shown(Some(state))));
        }
        text
    }

    pub(crate) fn has_files(&self) -> bool {
        let is_file =
            |state: &Option<FileState>| state.as_ref().is_some_and(|state| !state.is_folder());
        let has_files = self.within.iter().any(|(_, state)| !state.is_folder());
        is_file(&self.before) || is_file(&self.after) || has_files
    }

    /// Whether it is a folder that was not there.
    pub(crate) fn is_new_folder(&self) -> bool {
        self.before.is_none() && self.after.as_ref().is_some_and(FileState::is_folder)
    }

    /// Whether all is held that makes the change again.
    pub(crate) fn is_held(&self) -> bool {
        let is_held = |state: &FileState| {
            !matches!(
                state,
                FileState::Other | FileState::Unreadable | FileState::File { bytes: None, .. }
            )
        };
        self.is_whole
            && self.after.as_ref().is_none_or(is_held)
            && self.within.iter().all(|(_, state)| is_held(state))
    }

    /// Makes the file at `path`, which is as before, what it was after the change, with all that a
    /// new folder had in `root`.
    ///
    /// # Errors
    ///
    /// If it is not held or the system refuses.
    pub(crate) fn make(&self, root: &Path) -> io::Result<()> {
        let path = root.join(&self.path);
        clear(&path, &self.before, &self.after)?;
        self.after.as_ref().map_or(Ok(()), |after| after.restore(&path))?;
        self.within.iter().try_for_each(|(path, state)| state.restore(&root.join(path)))
    }

    /// Removes what the change has made at `path` if a file or folder of the kind of before cannot
    /// replace it.
    pub(crate) fn clear(&self, path: &Path) -> io::Result<()> {
        clear(path, &self.after, &self.before)
    }
}

/// What a difference compares: the contents after a line with the mode of a program.
fn shown(state: Option<&FileState>) -> Vec<u8> {
    match state {
        None => Vec::new(),
        Some(FileState::Folder { mode }) => format!("folder of mode {mode:o}\n").into_bytes(),
        Some(FileState::Link { target }) => format!("link to {}\n", target.display()).into_bytes(),
        Some(FileState::File { mode, bytes: Some(bytes), .. })
            if bytes.len() <= MAX_SHOWN_BYTES =>
        {
            [format!("mode {mode:o}\n").as_bytes(), bytes].concat()
        }
        Some(FileState::File { mode, .. }) => format!("mode {mode:o}\nlarge file\n").into_bytes(),
        Some(FileState::Other) => b"special file\n".to_vec(),
        Some(FileState::Unreadable) => b"not readable\n".to_vec(),
    }
}

/// Removes what `path` names if a file or folder of the kind of `to` cannot replace it.
fn clear(path: &Path, from: &Option<FileState>, to: &Option<FileState>) -> io::Result<()> {
    match (from, to) {
        (None, _) | (Some(FileState::File { .. }), Some(FileState::File { .. })) => Ok(()),
        (Some(FileState::Folder { .. }), Some(FileState::Folder { .. })) => Ok(()),
        (Some(FileState::Folder { .. }), _) => remove_folder(path),
        // What cannot be seen is left as it is.
        (Some(FileState::Unreadable), Some(_)) => Ok(()),
        _ => fs::remove_file(path),
    }
}
