//! Folders whose modes keep their owner out, and are opened for a while.
//!
//! Invariant: a folder has the mode that it had, or one that somebody else has set meanwhile.

use std::fs::{self, DirEntry, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What the owner needs to look into a folder, and to change what it has.
pub(crate) const LOOK_INTO: u32 = 0o500;
pub(crate) const CHANGE: u32 = 0o700;

/// Bits of a mode.
const MODE: u32 = 0o7777;

/// Folders that are open. Their modes are put back when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct OpenFolders {
    opened: Vec<OpenedFolder>,
}

#[derive(Debug)]
struct OpenedFolder {
    path: PathBuf,
    before: u32,
    open: u32,
}

impl OpenFolders {
    /// Gives the owner `bits` of the folders from `base` on to the one that has `path`. What cannot
    /// be opened is found by the use of it.
    pub fn open(&mut self, base: &Path, path: &Path, bits: u32) {
        let above: Vec<&Path> =
            path.ancestors().skip(1).take_while(|folder| folder.starts_with(base)).collect();
        for folder in above.into_iter().rev() {
            let Ok(found) = fs::symlink_metadata(folder) else { return };
            let mode = found.mode() & MODE;
            if !found.is_dir() || mode & bits == bits {
                continue;
            }
            let open = mode | bits;
            if fs::set_permissions(folder, Permissions::from_mode(open)).is_ok() {
                self.opened.push(OpenedFolder { path: folder.to_owned(), before: mode, open });
            }
        }
    }

    /// The entries of the folder `path`, which is opened where it needs to be; none of one that
    /// cannot be read.
    pub fn entries(&mut self, base: &Path, path: &Path) -> impl Iterator<Item = DirEntry> + use<> {
        let entries = match fs::read_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.open(base, &path.join("entry"), LOOK_INTO);
                fs::read_dir(path)
            }
            entries => entries,
        };
        entries.into_iter().flatten().flatten()
    }
}

impl Drop for OpenFolders {
    fn drop(&mut self) {
        for OpenedFolder { path, before, open } in self.opened.iter().rev() {
            let is_open = |found: fs::Metadata| found.is_dir() && found.mode() & MODE == *open;
            if fs::symlink_metadata(path).is_ok_and(is_open) {
                // A folder that is no longer the owner's has no mode to put back.
                let _ = fs::set_permissions(path, Permissions::from_mode(*before));
            }
        }
    }
}

/// Removes a folder with all that it has, whatever the modes of its folders are.
///
/// # Errors
///
/// If the system refuses.
pub(crate) fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mut folders = vec![path.to_owned()];
            while let Some(folder) = folders.pop() {
                // What cannot be opened is not removed, which the next step says.
                let _ = fs::set_permissions(&folder, Permissions::from_mode(CHANGE));
                let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
                let is_folder = |entry: &DirEntry| entry.file_type().is_ok_and(|it| it.is_dir());
                folders.extend(entries.filter(is_folder).map(|entry| entry.path()));
            }
            fs::remove_dir_all(path)
        }
        removed => removed,
    }
}
