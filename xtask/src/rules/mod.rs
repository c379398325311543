//! The rules that look at the project as a whole.

mod circles;
mod comments;
mod families;
mod references;
mod tables;
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
    /// Whether the project must keep it; else what breaks it is only shown.
    pub enforced: bool,
    pub check: fn(&Tree) -> Vec<Problem>,
}

const fn rule(name: &'static str, enforced: bool, check: fn(&Tree) -> Vec<Problem>) -> Rule {
    Rule { name, enforced, check }
}

/// All of them.
pub(crate) static ENFORCED: &[Rule] = &[
    rule("names in documents exist", false, references::check),
    rule("dependencies are those of the table", true, tables::dependencies),
    rule("unsafe is where the table says", true, tables::unsafe_files),
    rule("families in the README are those of the table", true, families::check),
    rule("comments end at column 100", false, comments::check),
    rule("modules have no circles", false, circles::check),
    rule("documents have none of the banned words", false, words::check),
    rule("a type name is defined at most twice", true, types::check),
];
