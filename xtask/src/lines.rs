//! Counts of lines: `cargo xtask lines`.
//!
//! A line of code has something on it besides comments and documentation, and production is
//! compiled with it. Tests within `src` count as lines, not as code.

use crate::rust::{code_only, test_lines, test_modules, without_comments};
use crate::tree::files;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};

/// Counts of one crate, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    files: usize,
    /// All lines below `src`.
    lines: usize,
    code: usize,
}

/// The counts of each crate by the name of its folder.
#[derive(Debug)]
pub(crate) struct LineCounts {
    crates: BTreeMap<String, Count>,
    xtask: Count,
}

impl LineCounts {
    /// Counts the crates of the workspace in `root`.
    pub fn of(root: &Path) -> io::Result<Self> {
        let mut crates = BTreeMap::new();
        for entry in std::fs::read_dir(root.join("crates"))? {
            let entry = entry?;
            let source = entry.path().join("src");
            if source.is_dir() {
                crates.insert(entry.file_name().to_string_lossy().into_owned(), count(&source)?);
            }
        }
        let source = root.join("xtask/src");
        let xtask = if source.is_dir() { count(&source)? } else { Count::default() };
        Ok(Self { crates, xtask })
    }

    /// A line for each crate, for all of them, and for this tool.
    pub fn table(&self) -> String {
        let mut text = format!("{:12}{:>7}{:>9}{:>9}\n", "crate", "files", "lines", "code");
        let crates = self.crates.iter().map(|(name, count)| (name.as_str(), *count));
        for (name, count) in crates.chain([("all crates", self.total()), ("xtask", self.xtask)]) {
            let Count { files, lines, code } = count;
            let _ = writeln!(text, "{name:12}{files:>7}{lines:>9}{code:>9}");
        }
        text
    }

    /// The same for programs.
    pub fn json(&self) -> String {
        let object = |Count { files, lines, code }: Count| {
            format!(r#"{{"files": {files}, "lines": {lines}, "code": {code}}}"#)
        };
        let crates =
            self.crates.iter().map(|(name, count)| format!("{name:?}: {}", object(*count)));
        let crates = crates.collect::<Vec<_>>().join(", ");
        let (total, xtask) = (object(self.total()), object(self.xtask));
        format!(r#"{{"crates": {{{crates}}}, "total": {total}, "xtask": {xtask}}}"#)
    }

    fn total(&self) -> Count {
        let mut total = Count::default();
        self.crates.values().for_each(|count| total += *count);
        total
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.lines += other.lines;
        self.code += other.code;
    }
}

/// Counts the Rust files below `source`.
fn count(source: &Path) -> io::Result<Count> {
    let mut total = Count::default();
    let files =
        files(source)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs"));
    let texts = files.map(|path| Ok((std::fs::read_to_string(&path)?, path)));
    let texts: Vec<(String, PathBuf)> = texts.collect::<io::Result<_>>()?;
    let tests: Vec<PathBuf> =
        texts.iter().flat_map(|(text, path)| test_files(text, path)).collect();
    for (text, path) in &texts {
        let is_test =
            tests.iter().any(|test| path.starts_with(test) || *path == test.with_extension("rs"));
        let code = if is_test { 0 } else { code_lines(text) };
        total += Count { files: 1, lines: text.lines().count(), code };
    }
    Ok(total)
}

/// Where the test modules of a file are, without the extension.
fn test_files(text: &str, path: &Path) -> Vec<PathBuf> {
    let folder = children(path);
    test_modules(&code_only(text)).into_iter().map(|name| folder.join(name)).collect()
}

/// The folder that the modules declared by a file lie in.
pub(crate) fn children(path: &Path) -> PathBuf {
    let is_root = ["mod", "lib", "main"].iter().any(|name| path.file_stem() == Some(name.as_ref()));
    if is_root { path.with_file_name("") } else { path.with_extension("") }
}

fn code_lines(text: &str) -> usize {
    let tests = test_lines(&code_only(text));
    let code = without_comments(text);
    let is_code = |(index, line): &(usize, &str)| {
        !line.trim().is_empty() && !tests.iter().any(|test| test.contains(index))
    };
    code.lines().enumerate().filter(is_code).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_counted_without_comments_blanks_and_tests() {
        let text = "//! A.\n\nuse b;\n/// C.\nfn c() { // d\n    \"\n// e\n\"\n}\n/* f\n*/\n\
                    #[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
        assert_eq!(code_lines(text), 6);
    }

    #[test]
    fn test_files_are_lines_and_no_code() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("crates/a/src");
        std::fs::create_dir_all(source.join("b/tests")).unwrap();
        for (file, text) in [
            ("lib.rs", "mod b;\n#[cfg(test)]\nmod c;\n"),
            ("b.rs", "#[cfg(test)]\nmod tests;\nfn b() {}\n"),
            ("b/tests.rs", "mod d;\nfn e() {}\n"),
            ("b/tests/d.rs", "fn f() {}\n"),
            ("c.rs", "fn g() {}\n"),
        ] {
            std::fs::write(source.join(file), text).unwrap();
        }
        let counts = LineCounts::of(folder.path()).unwrap();
        let expected = Count { files: 5, lines: 10, code: 2 };
        assert_eq!(counts.crates["a"], expected);
        let object = r#"{"files": 5, "lines": 10, "code": 2}"#;
        let xtask = r#"{"files": 0, "lines": 0, "code": 0}"#;
        let json =
            format!(r#"{{"crates": {{"a": {object}}}, "total": {object}, "xtask": {xtask}}}"#);
        assert_eq!(counts.json(), json);
        assert!(counts.table().contains("all crates        5       10        2\n"));
    }
}
