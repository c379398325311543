//! The folder that the tools work in, and what is remembered between calls.

use crate::command_shell::CommandShell;
use crate::error::ToolError;
use crate::file_change::{FileChange, FileContent, MAX_KEPT};
use crate::files::{open_regular, unused_file};
use crate::interrupt::Interrupt;
use crate::jobs::Jobs;
use crate::kept_files::KeptFiles;
use crate::shown::Shown;
use crate::tool_result::{MAX_RESULT_BYTES, MIN_RESULT_BYTES, fitted};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The folder of the tools, the folder in which they keep results, the jobs, and the lines that the
/// model has seen. Dropping it ends the jobs.
pub struct ToolWorkspace {
    root: PathBuf,
    kept: PathBuf,
    limit: usize,
    results: u64,
    pub(crate) shown: Shown,
    pub(crate) jobs: Jobs,
    pub(crate) interrupt: Interrupt,
}

impl ToolWorkspace {
    /// A workspace in the folder `root`; outputs and long results are kept in `kept`, and commands
    /// are those of `shell`.
    ///
    /// # Errors
    ///
    /// If one of the folders does not exist.
    pub fn open(root: &Path, kept: &Path, shell: CommandShell) -> Result<Self, ToolError> {
        let interrupt = Interrupt::default();
        let kept = folder(kept)?;
        Ok(Self {
            root: folder(root)?,
            jobs: Jobs::new(kept.clone(), shell, interrupt.clone()),
            kept,
            limit: MAX_RESULT_BYTES,
            results: 0,
            shown: Shown::default(),
            interrupt,
        })
    }

    /// The folder of the workspace, without links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What makes the current call end early.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// Sets the most bytes of a result, at least 1 KiB.
    pub fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes.max(MIN_RESULT_BYTES);
    }

    /// Most bytes of a result.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Ends all jobs with all their processes.
    pub fn end_jobs(&mut self) {
        self.jobs.end();
    }

    /// The path that a call names, from the folder of the workspace on. Whether it may be reached
    /// is the kernel's to judge.
    pub(crate) fn resolve(&self, path: &str) -> Result<PathBuf, ToolError> {
        if path.is_empty() {
            return Err(ToolError::new("the path is empty; expected a path from the workspace on"));
        }
        if path.contains('\0') {
            return Err(ToolError::new("the path has a zero byte, which no path can have"));
        }
        Ok(self.root.join(path))
    }

    /// The path as results show it: from the folder of the workspace on, if it is in there.
    pub(crate) fn name(&self, path: &Path) -> String {
        let path = path.strip_prefix(&self.root).unwrap_or(path);
        let name = crate::printable::printable(path.to_string_lossy().as_bytes());
        let name = name.replace('\n', "\\n");
        if name.is_empty() { ".".to_owned() } else { name }
    }

    /// Contents of files before tools changed them.
    pub(crate) fn kept(&self) -> KeptFiles {
        KeptFiles::of_tools(&self.kept)
    }

    /// What the file at `path` is, which is kept; it need not exist.
    ///
    /// # Errors
    ///
    /// If it cannot be kept.
    pub(crate) fn keep(&self, path: &Path) -> io::Result<FileContent> {
        let mut bytes = Vec::new();
        match open_regular(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(FileContent::Absent),
            // A file that can be replaced and not read is not kept.
            Err(_) => Ok(FileContent::Unknown),
            Ok(file) => {
                // One more shows that it is too large to be kept.
                file.take(MAX_KEPT as u64 + 1).read_to_end(&mut bytes)?;
                FileContent::keep(&bytes, &self.kept())
            }
        }
    }

    /// The change of the file at `path` from `before` to what `after` is.
    pub(crate) fn change(&self, path: &Path, before: FileContent, after: &[u8]) -> FileChange {
        let inner = path.strip_prefix(&self.root).unwrap_or(path);
        // A path that is no text cannot be written down.
        let before = if inner.to_str().is_some() { before } else { FileContent::Unknown };
        let path = inner.to_string_lossy().into_owned();
        FileChange { path, before, after: FileContent::of(after) }
    }

    /// `text`, or its head and tail if it does not fit; the whole is then in a file of the folder
    /// `kept`, which the text names.
    pub(crate) fn fit(&mut self, text: String) -> Result<String, ToolError> {
        if text.len() <= self.limit {
            return Ok(text);
        }
        self.results += 1;
        let failed = |source| ToolError::system("cannot write the whole result", source);
        let name = format!("result-{}", self.results);
        let (mut new, file) = unused_file(&self.kept, &name).map_err(failed)?;
        new.write_all(text.as_bytes()).map_err(failed)?;
        Ok(fitted(&text, self.limit, &file))
    }
}

fn folder(path: &Path) -> Result<PathBuf, ToolError> {
    let failed = |source| ToolError::system(format_args!("cannot use {}", path.display()), source);
    let found = fs::canonicalize(path).map_err(failed)?;
    match found.is_dir() {
        true => Ok(found),
        false => Err(ToolError::new(format!("{} is no folder", path.display()))),
    }
}
