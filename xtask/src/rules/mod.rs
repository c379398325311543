//! The rules that look at the project as a whole.

mod circles;
mod columns;
mod comments;
mod errors;
mod exports;
mod families;
mod limits;
mod mathematics;
mod operations;
mod references;
mod tables;
mod tuples;
mod types;
mod words;

use crate::tree::Tree;

/// Something that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub path: String,
    /// From 1.
    pub line: usize,
    pub what: String,
}

impl Problem {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// One rule.
#[derive(Debug)]
pub(crate) struct Rule {
    pub name: &'static str,
    /// Files and folders in which breaches are only shown.
    pub exempt: &'static [&'static str],
    pub check: fn(&Tree) -> Vec<Problem>,
}

impl Rule {
    /// Whether `problem` is only shown.
    pub fn is_exempt(&self, problem: &Problem) -> bool {
        self.exempt.iter().any(|folder| problem.path.starts_with(folder))
    }

    const fn new(name: &'static str, check: fn(&Tree) -> Vec<Problem>) -> Self {
        Self { name, exempt: &[], check }
    }

    /// The same rule, enforced outside of `exempt`.
    const fn outside(self, exempt: &'static [&'static str]) -> Self {
        Self { exempt, ..self }
    }
}

/// Files with types whose documentation is the text of `/openapi.json`, which stays as it is from
/// version to version.
const API_TEXTS: &[&str] =
    &["crates/server/src/generate/options.rs", "crates/server/src/protocols/"];

/// All rules for the whole project.
pub(crate) static ENFORCED: &[Rule] = &[
    Rule::new("names in documents exist", references::check),
    Rule::new("dependencies are those of the table", tables::dependencies),
    Rule::new("unsafe is where the table says", tables::unsafe_files),
    Rule::new("families in the README are those of the table", families::check),
    Rule::new("comments end at column 100", comments::check),
    Rule::new("lines of documents end at column 100", columns::check),
    Rule::new("limits are called MAX and MIN", limits::check),
    Rule::new("modules have no circles", circles::check),
    Rule::new("crates export their own names", exports::check),
    Rule::new("documents have none of the banned words", words::check).outside(API_TEXTS),
    Rule::new("operations have a case on every device", operations::check),
    Rule::new("a type name is defined at most twice", types::check),
    Rule::new("no two calls pass the same tuple", tuples::check),
    Rule::new("errors of public functions are documented", errors::check),
    Rule::new("functions of floats are of base::math", mathematics::check),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_enforced_outside_of_exempt_folders() {
        let rule = Rule::new("a", words::check).outside(&["crates/a/"]);
        assert!(rule.is_exempt(&Problem::new("crates/a/src/lib.rs", 1, "")));
        assert!(!rule.is_exempt(&Problem::new("crates/ab/src/lib.rs", 1, "")));
    }
}
