//! The rules that a reader can rely on in every file of this project.

use crate::functions::{Function, functions};
use crate::markdown::dead_links;
use crate::rules::ENFORCED;
use crate::tree::{SourceFile, Tree};
use std::io;
use std::path::Path;

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;
/// Lines of the function in the middle, and of the one that 95 of 100 are no longer than.
const MEDIAN_LINES: usize = 8;
const P95_LINES: usize = 40;

/// What a walk over the project found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// One line each: file, line, rule.
    pub problems: Vec<String>,
    /// What breaks rules in files that are exempt from them.
    pub exempt: Vec<String>,
    files: usize,
    function_lines: Vec<usize>,
}

impl Found {
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// A line with the counts.
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

    fn problem(&mut self, path: &str, line: usize, what: &str) {
        self.problems.push(format!("{path}:{line}: {what}"));
    }
}

/// Checks every file below `root` separately.
pub(crate) fn check_files(root: &Path, tree: &Tree) -> Found {
    let mut found = Found::default();
    for file in &tree.files {
        if file.path.ends_with(".rs") {
            check_rust(&mut found, file);
        } else if file.path.ends_with(".md") {
            check_markdown(&mut found, root, file);
        } else {
            continue;
        }
        found.files += 1;
    }
    found.function_lines.sort_unstable();
    check_distribution(&mut found);
    found
}

/// Checks everything below `root`, file by file and by the rules for the whole.
pub(crate) fn check(root: &Path) -> io::Result<Found> {
    let root = root.canonicalize()?;
    let tree = Tree::read(&root)?;
    let mut found = check_files(&root, &tree);
    for rule in ENFORCED {
        for problem in (rule.check)(&tree) {
            match rule.is_exempt(&problem) {
                true => found.exempt.push(format!("{}: {problem}", rule.name)),
                false => found.problems.push(problem.to_string()),
            }
        }
    }
    Ok(found)
}

fn check_rust(found: &mut Found, file: &SourceFile) {
    let SourceFile { path, text, code } = file;
    // The head of a file of tests is that of the module that it tests.
    if !text.starts_with("//!") && !path.ends_with("tests.rs") {
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
    for Function { name, line, lines } in functions(code) {
        if lines > FUNCTION_LINES {
            let what = format!("fn {name} has {lines} lines (at most {FUNCTION_LINES})");
            found.problem(path, line, &what);
        }
        found.function_lines.push(lines);
    }
}

fn check_markdown(found: &mut Found, root: &Path, file: &SourceFile) {
    let SourceFile { path, text, .. } = file;
    let whole = root.join(path);
    let folder = whole.parent().unwrap_or(root);
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
        let found = super::check_files(folder.path(), &Tree::read(folder.path()).unwrap());
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
        check_rust(&mut found, &Tree::of(&[("a.rs", &source(70))]).files[0]);
        assert!(found.is_clean());
        check_rust(&mut found, &Tree::of(&[("a.rs", &source(71))]).files[0]);
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
        assert!(Tree::read(folder.path()).unwrap().files.is_empty());
    }
}
