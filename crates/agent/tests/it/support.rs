//! A workspace in a temporary folder.

use agent::{CommandShell, TOOLS, ToolError, ToolOutput, ToolWorkspace};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A workspace whose folders are removed at the end of a test.
pub struct Place {
    folder: TempDir,
    pub workspace: ToolWorkspace,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let workspace = open(folder.path());
        Self { folder, workspace }
    }

    /// The path of a file of the workspace.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("work").join(name)
    }

    pub fn temporary(&self) -> PathBuf {
        self.folder.path().join("temporary")
    }

    /// Writes a file of the workspace, and its folders.
    pub fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    pub fn call(&mut self, tool: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
        let tool = TOOLS.iter().find(|row| row.name == tool).unwrap();
        (tool.run)(&mut self.workspace, arguments)
    }

    /// The text of a call that succeeds.
    pub fn text(&mut self, tool: &str, arguments: Value) -> String {
        self.call(tool, arguments).unwrap().text
    }

    /// The text of a call that fails.
    pub fn error(&mut self, tool: &str, arguments: Value) -> String {
        self.call(tool, arguments).unwrap_err().to_string()
    }
}

/// A workspace in `folder`.
pub fn open(folder: &Path) -> ToolWorkspace {
    let (work, temporary) = (folder.join("work"), folder.join("temporary"));
    fs::create_dir_all(&work).unwrap();
    fs::create_dir_all(&temporary).unwrap();
    ToolWorkspace::open(&work, &temporary, CommandShell::new(&temporary)).unwrap()
}

/// Asserts that `text` has each of `parts`.
pub fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "expected {part:?} in:\n{text}");
    }
}
