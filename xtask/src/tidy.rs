//! The rules that a reader can rely on in every file of this project.

use crate::functions::{Function, functions};
use crate::markdown::dead_links;
use crate::rust::code_only;
use std::io;
use std::path::{Path, PathBuf};

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;
/// Lines of the function in the middle, and of the one that 95 of 100 are no longer than.
const MEDIAN_LINES: usize = 8;
const P95_LINES: usize = 40;

/// Folders without files of the project.
const SKIPPED: &[&str] = &["target", "corpus", "node_modules", "__pycache__", "build"];

/// What a walk over the project found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// One line each: file, line, rule.
    pub problems: Vec<String>,
    files: usize,
    function_lines: Vec<usize>,
}

impl Found {
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Counts for people.
    pub fn summary(&self) -> String {
        let [median, p95, longest] = [50, 95, 100].map(|share| self.percentile(share));
        format!(
            "{} files are tidy; {} functions, lines: median {median}, 95 % within {p95}, at most \
             {longest}",
            self.files,
            self.function_lines.len(),
        )
    }

    /// `function_lines` must be sorted.
    fn percentile(&self, share: usize) -> usize {
        let last = self.function_lines.len().saturating_sub(1);
        self.function_lines.get(last * share / 100).copied().unwrap_or(0)
    }

    fn problem(&mut self, path: &Path, line: usize, what: &str) {
        self.problems.push(format!("{}:{line}: {what}", path.display()));
    }
}

/// Checks everything below `root`.
pub(crate) fn check(root: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    let root = root.canonicalize()?;
    for path in files(&root)? {
        let shown = path.strip_prefix(&root).unwrap_or(&path);
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => check_rust(&mut found, shown, &std::fs::read_to_string(&path)?),
            Some("md") => {
                let text = std::fs::read_to_string(&path)?;
                check_markdown(&mut found, shown, &text, path.parent().unwrap_or(&root));
            }
            _ => continue,
        }
        found.files += 1;
    }
    found.function_lines.sort_unstable();
    check_distribution(&mut found);
    Ok(found)
}

/// All files below `folder` in order, but for those of folders that hold nothing of the project.
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

fn check_rust(found: &mut Found, path: &Path, text: &str) {
    // The tests of a module may stand beside it; then the module has the head.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if !text.starts_with("//!") && !name.ends_with("tests.rs") {
        found.problem(path, 1, "no `//!` head that names the subject");
    }
    let lines = text.lines().count();
    if lines > FILE_LINES {
        found.problem(path, lines, &format!("{lines} lines (at most {FILE_LINES})"));
    }
    for (index, line) in text.lines().enumerate() {
        if line.contains('\t') {
            found.problem(path, index + 1, "a tab");
        }
        if line.ends_with(' ') {
            found.problem(path, index + 1, "white space at the end");
        }
    }
    for Function { name, line, lines } in functions(&code_only(text)) {
        if lines > FUNCTION_LINES {
            let what = format!("fn {name} has {lines} lines (at most {FUNCTION_LINES})");
            found.problem(path, line, &what);
        }
        found.function_lines.push(lines);
    }
}

fn check_markdown(found: &mut Found, path: &Path, text: &str, folder: &Path) {
    if !text.starts_with("# ") {
        found.problem(path, 1, "no title");
    }
    for link in dead_links(text, folder) {
        found.problem(path, link.line, &format!("dead link {}", link.target));
    }
}

fn check_distribution(found: &mut Found) {
    for (share, most) in [(50, MEDIAN_LINES), (95, P95_LINES)] {
        let lines = found.percentile(share);
        if lines > most {
            let what = format!("{share} % of functions reach {lines} lines (at most {most})");
            found.problems.push(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, text: &str, expected: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(file), text).unwrap();
        let found = super::check(folder.path()).unwrap();
        assert_eq!(found.problems, expected, "{text}");
    }

    #[test]
    fn each_rule_finds_its_breach() {
        check("a.rs", "fn a() {}\n", &["a.rs:1: no `//!` head that names the subject"]);
        check("a.rs", "//! A.\n\tx\n", &["a.rs:2: a tab"]);
        check("a.rs", "//! A. \n", &["a.rs:1: white space at the end"]);
        check("a.md", "text\n", &["a.md:1: no title"]);
        check("a.md", "# A\n[b](b.md)\n", &["a.md:2: dead link b.md"]);
        let long = format!("//! A.\n{}", "//\n".repeat(600));
        check("a.rs", &long, &["a.rs:601: 601 lines (at most 600)"]);
    }

    #[test]
    fn a_function_may_have_70_lines_and_no_more() {
        let source = |lines: usize| format!("//! A.\nfn a() {{\n{}}}\n", "x;\n".repeat(lines - 2));
        let mut found = Found::default();
        check_rust(&mut found, Path::new("a.rs"), &source(70));
        assert!(found.is_clean());
        check_rust(&mut found, Path::new("a.rs"), &source(71));
        assert_eq!(found.problems, ["a.rs:2: fn a has 71 lines (at most 70)"]);
    }

    #[test]
    fn the_whole_is_held_to_short_functions() {
        let mut found = Found { function_lines: vec![9; 20], ..Found::default() };
        check_distribution(&mut found);
        assert_eq!(found.problems, ["50 % of functions reach 9 lines (at most 8)"]);
    }

    #[test]
    fn clean_files_give_no_problem_and_foreign_folders_are_skipped() {
        check("a.rs", "//! A.\n\nfn a() {}\n", &[]);
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("target")).unwrap();
        std::fs::write(folder.path().join("target/a.rs"), "x").unwrap();
        assert!(super::check(folder.path()).unwrap().is_clean());
    }
}
