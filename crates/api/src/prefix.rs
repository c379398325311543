//! Computed prefixes as files of their own.

use std::fmt::Debug;
use std::path::Path;

/// A prefix in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixFile {
    /// Its tokens, with a rest that fills no block and is computed again.
    pub tokens: Vec<u32>,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Takes computed prefixes to files and back. Its methods wait for the disk.
pub trait PrefixFiles: Debug + Send + Sync {
    /// Writes what is kept of these tokens, from the first on, to a file.
    ///
    /// # Errors
    ///
    /// Why it cannot be written.
    fn save(&self, tokens: &[u32], path: &Path) -> Result<PrefixFile, String>;

    /// Reads a file, so that later requests find its prefix.
    ///
    /// # Errors
    ///
    /// Why it cannot be read or used.
    fn restore(&self, path: &Path) -> Result<PrefixFile, String>;
}
