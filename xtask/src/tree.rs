//! The files of the project, read once for all rules.

use crate::rust::code_only;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Folders without files of the project.
const SKIPPED: &[&str] = &["target", "corpus", "node_modules", "__pycache__", "build", "vendor"];
/// Extensions of files with text that rules read.
const TEXT: &[&str] = &[
    "css", "html", "jinja", "js", "json", "md", "mjs", "py", "rs", "sh", "toml", "ts", "txt",
    "wgsl", "yaml", "yml",
];

/// All files of the project.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Files with text, in order.
    pub files: Vec<SourceFile>,
    /// Paths of all files and folders.
    pub paths: BTreeSet<String>,
}

/// One file with text.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// From the root of the project, with `/` between its parts.
    pub path: String,
    pub text: String,
    /// [`code_only`] of Rust files; nothing of others.
    pub code: String,
}

impl Tree {
    /// Reads everything below `root`.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        for path in files(root)? {
            let short = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            let extension = path.extension().unwrap_or_default().to_string_lossy();
            let text = match TEXT.contains(&extension.as_ref()) {
                true => Some(std::fs::read_to_string(&path)?),
                false => None,
            };
            tree.add(short, text);
        }
        Ok(tree)
    }

    /// Adds a file; `text` is left out where no rule reads it.
    fn add(&mut self, path: String, text: Option<String>) {
        let mut known = path.as_str();
        while let Some((folder, _)) = known.rsplit_once('/') {
            self.paths.insert(folder.to_owned());
            known = folder;
        }
        if let Some(text) = text {
            let code = if path.ends_with(".rs") { code_only(&text) } else { String::new() };
            self.files.push(SourceFile { path: path.clone(), text, code });
        }
        self.paths.insert(path);
    }

    /// The file at `path`.
    pub fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Files whose names end in `.extension`.
    pub fn with_extension(&self, extension: &str) -> impl Iterator<Item = &SourceFile> {
        let end = format!(".{extension}");
        self.files.iter().filter(move |file| file.path.ends_with(&end))
    }

    /// Rust files that crates are compiled from, tests in `src` included.
    pub fn sources(&self) -> impl Iterator<Item = &SourceFile> {
        let is_source = |path: &str| {
            let mut parts = path.split('/');
            parts.next() == Some("crates") && parts.nth(1) == Some("src")
        };
        self.with_extension("rs").filter(move |file| is_source(&file.path))
    }

    /// The names of the crates, which are those of their folders.
    pub fn crates(&self) -> BTreeSet<&str> {
        let manifests = self.paths.iter().filter_map(|path| path.strip_suffix("/Cargo.toml"));
        let folders = manifests.filter_map(|folder| folder.strip_prefix("crates/"));
        folders.filter(|name| !name.contains('/')).collect()
    }

    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.add((*path).to_owned(), Some((*text).to_owned()));
        }
        tree
    }
}

/// All files below `folder` in order, without folders that hold nothing of the project.
pub(crate) fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || SKIPPED.contains(&name.as_ref()) {
            continue;
        }
        // A virtual environment holds files of other projects.
        if path.is_dir() && !path.join("pyvenv.cfg").exists() {
            all.extend(files(&path)?);
        } else if path.is_file() {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}
