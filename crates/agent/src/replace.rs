//! How a file is replaced whole: other programs see the old contents or the new, never a part.

use crate::error::ToolError;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of a mode that a replaced file keeps. The system drops the others when a file is written.
const KEPT_MODE: u32 = 0o777;

/// Makes `bytes` the contents of the file at `path`, which keeps its mode; a new file has the mode
/// `mode` or the usual one.
///
/// # Errors
///
/// If the folder or the file cannot be written. The file is then as it was.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: Option<u32>) -> io::Result<()> {
    let kept = fs::metadata(path).ok().map(|found| found.permissions().mode());
    let (temporary, file) = temporary(path)?;
    let written = write(file, bytes, kept.or(mode)).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first error says more than that of the removal.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Whether the mode of the file at `path` allows writing, which a renaming would ignore.
///
/// # Errors
///
/// If it does not.
pub(crate) fn check_mode(path: &Path, name: &str) -> Result<(), ToolError> {
    match fs::metadata(path) {
        Ok(found) if found.permissions().readonly() => {
            Err(ToolError::new(format!("{name} is read-only: its mode allows no writing")))
        }
        _ => Ok(()),
    }
}

fn write(mut file: File, bytes: &[u8], mode: Option<u32>) -> io::Result<()> {
    file.write_all(bytes)?;
    if let Some(mode) = mode {
        file.set_permissions(Permissions::from_mode(mode & KEPT_MODE))?;
    }
    // Without it a crash of the system could leave an empty file after the renaming.
    file.sync_data()
}

/// A new file beside `path`, since only files of one file system can be renamed.
fn temporary(path: &Path) -> io::Result<(PathBuf, File)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // The name of the file may have the greatest length that the system allows.
        let name = folder.join(format!(".gannet-{}-{number}.tmp", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&name) {
            Err(found) if found.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (name, file)),
        }
    }
}
