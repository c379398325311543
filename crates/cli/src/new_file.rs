//! Files that commands write: as a whole or not at all, and over no other unless that is asked for.

use anyhow::{Context, Result, bail};
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file that appears under its name when it is finished.
#[derive(Debug)]
pub(crate) struct NewFile {
    path: PathBuf,
    destination: Destination,
}

#[derive(Debug)]
enum Destination {
    /// A file beside the named one, which is renamed; whether it may replace another.
    Temporary(NamedTempFile, bool),
    /// What is no file in a folder: a pipe or a device.
    Device(File),
}

impl NewFile {
    /// Checks that a file at `path` can be written by this rule.
    ///
    /// # Errors
    ///
    /// If there is one and `force` does not allow to replace it.
    pub fn check(path: &Path, force: bool) -> Result<()> {
        base::check_output(path)?;
        match path.metadata() {
            Ok(found) if found.is_dir() => {
                bail!("{}: expected a file, found a folder", path.display())
            }
            Ok(found) if found.is_file() && !force => {
                bail!("{} exists already; --force replaces it", path.display())
            }
            _ => Ok(()),
        }
    }

    /// Begins a file at `path`.
    ///
    /// # Errors
    ///
    /// If there is one and `force` does not allow to replace it, or it cannot be created.
    pub fn create(path: &Path, force: bool) -> Result<Self> {
        Self::check(path, force)?;
        let is_device = path.metadata().is_ok_and(|found| !found.is_file());
        let opened = match is_device {
            true => File::options().write(true).open(path).map(Destination::Device),
            false => temporary(path).map(|file| Destination::Temporary(file, force)),
        };
        let destination = opened.with_context(|| format!("cannot write {}", path.display()))?;
        // The file that a link names is replaced, not the link.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self { path, destination })
    }

    /// Writes all of a file.
    ///
    /// # Errors
    ///
    /// If there is one and `force` does not allow to replace it, or it cannot be written.
    pub fn write(path: &Path, force: bool, content: &[u8]) -> Result<()> {
        let mut file = Self::create(path, force)?;
        let written = file.write_all(content);
        written.with_context(|| format!("cannot write {}", path.display()))?;
        file.finish()
    }

    /// The path at which the content is until the file is finished, for a writer that opens it
    /// itself.
    pub fn written_path(&self) -> &Path {
        match &self.destination {
            Destination::Temporary(file, _) => file.path(),
            Destination::Device(_) => &self.path,
        }
    }

    /// Gives the file its name.
    ///
    /// # Errors
    ///
    /// If another has it by now and must not be replaced, or the system gives one.
    pub fn finish(self) -> Result<()> {
        let Destination::Temporary(file, force) = self.destination else { return Ok(()) };
        let named = match force {
            true => file.persist(&self.path),
            false => file.persist_noclobber(&self.path),
        };
        let named = named.map(drop).map_err(|error| error.error);
        named.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// A hidden file beside `path`, with the permissions that new files get.
fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(".gannet-").permissions(Permissions::from_mode(0o666));
    let created = builder.tempfile_in(folder.unwrap_or(Path::new(".")));
    // The error itself names the hidden file, and the system's is not to be had from it.
    created.map_err(|error| error.kind().into())
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.destination {
            // Its own errors name the hidden file.
            Destination::Temporary(file, _) => file.as_file_mut().write(bytes),
            Destination::Device(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.destination {
            Destination::Temporary(file, _) => file.as_file_mut().flush(),
            Destination::Device(file) => file.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string();
        folder.read_dir().unwrap().map(|entry| name(entry).unwrap()).collect()
    }

    #[test]
    fn a_file_that_is_not_finished_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut file = NewFile::create(&path, false).unwrap();
        file.write_all(b"half").unwrap();
        assert!(!path.exists());
        drop(file);
        assert!(names(folder.path()).is_empty());
        NewFile::write(&path, false, b"whole").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
    }

    #[test]
    fn another_file_is_replaced_only_by_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut late = NewFile::create(&path, false).unwrap();
        std::fs::write(&path, "old").unwrap();
        let error = NewFile::write(&path, false, b"new").unwrap_err().to_string();
        assert!(error.contains("exists already; --force"), "{error}");
        late.write_all(b"new").unwrap();
        assert!(late.finish().is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        NewFile::write(&link, true, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert!(link.is_symlink() && names(folder.path()).len() == 2);
    }

    #[test]
    fn a_missing_folder_and_standard_output_are_named_as_they_were_given() {
        let error = NewFile::create(Path::new("/nowhere/x"), false).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.starts_with("cannot write /nowhere/x: ") && !error.contains(".gannet-"));
        let error = NewFile::write(Path::new("-"), true, b"x").unwrap_err().to_string();
        assert!(error.starts_with("-: expected the name of a file"), "{error}");
    }

    #[test]
    fn devices_are_written_as_they_are() {
        NewFile::write(Path::new("/dev/null"), false, b"x").unwrap();
    }
}
