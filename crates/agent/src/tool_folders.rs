//! The folders of the tools for what is temporary.
//!
//! Invariant: commands write in one of them alone, so that no link of theirs leads the agent, which
//! is not confined, or the process of the tools elsewhere.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A private folder with those of the tools in it:
///
/// | name | what is in it | who writes there |
/// |---|---|---|
/// | `tmp` | what commands find in `TMPDIR` | commands, the tools |
/// | `kept` | outputs, results, contents before changes, git's settings | the tools, the agent |
///
/// The tools and the commands read both.
#[derive(Debug)]
pub struct ToolFolders {
    root: PathBuf,
}

impl ToolFolders {
    /// The folders in `root`, which is empty.
    ///
    /// # Errors
    /// If they cannot be made.
    pub fn new(root: &Path) -> io::Result<Self> {
        let folders = Self { root: root.canonicalize()? };
        fs::create_dir(folders.temporary())?;
        fs::create_dir(folders.kept())?;
        Ok(folders)
    }

    /// The folder that both are in.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of commands.
    pub fn temporary(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// The folder of the tools.
    pub fn kept(&self) -> PathBuf {
        self.root.join("kept")
    }

    /// The file with git's settings.
    pub fn git_config(&self) -> PathBuf {
        self.kept().join("gitconfig")
    }

    /// The folder of contents before changes where the session has none of its own.
    pub fn before(&self) -> PathBuf {
        self.kept().join("of-session")
    }
}
