//! Mapping of files.

use std::path::Path;
use std::sync::Arc;

use base::Mmap;

use crate::error::{Error, Result};

/// Maps a regular file. Other kinds are an error: opening a pipe would block until a writer
/// appears.
pub(crate) fn map_file(path: &Path) -> Result<Arc<Mmap>> {
    check_regular(path)?;
    Mmap::open(path).map(Arc::new).map_err(|e| Error::read(path, e))
}

/// An error unless there is a regular file (or a link to one) at `path`.
pub(crate) fn check_regular(path: &Path) -> Result<()> {
    let metadata = path.metadata().map_err(|e| Error::read(path, e))?;
    match metadata.is_file() {
        true => Ok(()),
        false => Err(Error::file(path, "expected a regular file, found something else")),
    }
}
