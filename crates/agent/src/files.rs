//! Files that are opened where commands may have put something else in their place.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Opens a regular file for reading.
///
/// # Errors
///
/// If it cannot be opened or is something else, such as a pipe, which would wait, or a device.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    // Looked at when it is open, since a path may name something else a moment later.
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// A new file in `folder` with the first name of `NAME.txt`, `NAME-2.txt` and so on that is free;
/// gives its path as well.
///
/// # Errors
///
/// If it cannot be created.
pub(crate) fn unused_file(folder: &Path, name: &str) -> io::Result<(File, PathBuf)> {
    let mut number = 1;
    loop {
        let more = if number == 1 { String::new() } else { format!("-{number}") };
        let path = folder.join(format!("{name}{more}.txt"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// A new file at `path`, in place of a file that is there.
///
/// # Errors
///
/// If it cannot be created.
pub(crate) fn new_file(path: &Path) -> io::Result<File> {
    // An existing one may be a link or a pipe. If it cannot be removed, the next step fails.
    let _ = fs::remove_file(path);
    OpenOptions::new().write(true).create_new(true).open(path)
}
