//! What a tool changed of a file: what it was before, which is kept, and what it is now.

use crate::kept_files::KeptFiles;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Most bytes of contents that are kept.
pub(crate) const MAX_KEPT: usize = 64 << 20;

/// A change of a file by a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileChange {
    /// The file, from the workspace on.
    pub path: String,
    /// What it was.
    pub before: FileContent,
    /// What it is.
    pub after: FileContent,
}

/// The content of a file at some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileContent {
    /// There is no file.
    Absent,
    /// The digest of the content, under which it is kept.
    Digest(String),
    /// It is not kept: it is too large, or could not be read.
    Unknown,
}

impl FileContent {
    /// What `bytes` are, without keeping them.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::Digest(KeptFiles::digest(bytes))
    }

    /// The content, where the tools keep it in their folder `kept`.
    pub fn of_tools(&self, kept: &Path) -> Option<Vec<u8>> {
        match self {
            Self::Digest(digest) => KeptFiles::of_tools(kept).read(digest).ok(),
            Self::Absent | Self::Unknown => None,
        }
    }

    /// What `bytes` are, which are kept in `kept`.
    ///
    /// # Errors
    /// If they cannot be written there.
    pub(crate) fn keep(bytes: &[u8], kept: &KeptFiles) -> io::Result<Self> {
        match bytes.len() <= MAX_KEPT {
            true => kept.keep(bytes).map(Self::Digest),
            false => Ok(Self::Unknown),
        }
    }
}
