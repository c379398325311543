//! The tables of ARCHITECTURE.md: what crates depend on, and which files have `unsafe`.

use super::Problem;
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// The cells of a line of a table; none of other lines.
pub(super) fn cells(line: &str) -> Vec<&str> {
    let inner = line.trim().strip_prefix('|').and_then(|line| line.strip_suffix('|'));
    inner.map_or_else(Vec::new, |inner| inner.split('|').map(str::trim).collect())
}

/// The text in backticks.
pub(super) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A row about a crate.
struct Row<'a> {
    /// From 1.
    line: usize,
    name: &'a str,
    /// Names in backticks in the column asked for.
    listed: BTreeSet<&'a str>,
}

/// The rows of the table with the column `name`, by the crate in their first cell.
fn rows<'a>(text: &'a str, name: &str) -> Option<Vec<Row<'a>>> {
    let mut lines = text.lines().enumerate();
    let column =
        lines.find_map(|(_, line)| cells(line).into_iter().position(|cell| cell == name))?;
    let body = lines.skip(1).map_while(|(index, line)| {
        let cells = cells(line);
        let listed = quoted(cells.get(column)?).collect();
        Some(Row { line: index + 1, name: quoted(cells[0]).next().unwrap_or(""), listed })
    });
    Some(body.collect())
}

/// Compares the column `depends on` with the manifests.
pub(crate) fn dependencies(tree: &Tree) -> Vec<Problem> {
    let text = tree.file(ARCHITECTURE).map_or("", |file| &file.text);
    let Some(rows) = rows(text, "depends on") else {
        return vec![Problem::new(ARCHITECTURE, 1, "no table with a column `depends on`")];
    };
    let crates = tree.crates();
    let mut problems = Vec::new();
    for Row { line, name, listed } in &rows {
        let mut problem = |what| problems.push(Problem::new(ARCHITECTURE, *line, what));
        let Some(manifest) = tree.file(&format!("crates/{name}/Cargo.toml")) else {
            problem(format!("no crate {name}"));
            continue;
        };
        let found: BTreeSet<&str> = depends_on(&manifest.text);
        let found: BTreeSet<&str> = found.intersection(&crates).copied().collect();
        found.difference(listed).for_each(|other| problem(format!("{name} depends on {other}")));
        let gone = listed.difference(&found);
        gone.for_each(|other| problem(format!("{name} does not depend on {other}")));
    }
    let in_table: BTreeSet<&str> = rows.iter().map(|row| row.name).collect();
    let missing = crates.difference(&in_table);
    problems.extend(missing.map(|name| Problem::new(ARCHITECTURE, 1, format!("no row of {name}"))));
    problems
}

/// The dependencies of a manifest, without those of tests.
fn depends_on(manifest: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let mut within = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            within = line == "[dependencies]"
                || line.starts_with("[target.") && line.ends_with(".dependencies]");
        } else if within {
            let end = line.find(['.', ' ', '=']).unwrap_or(0);
            names.insert(&line[..end]);
        }
    }
    names.remove("");
    names
}

/// Compares the column ``files with `unsafe` `` with the sources.
pub(crate) fn unsafe_files(tree: &Tree) -> Vec<Problem> {
    let text = tree.file(ARCHITECTURE).map_or("", |file| &file.text);
    let Some(rows) = rows(text, "files with `unsafe`") else {
        return vec![Problem::new(ARCHITECTURE, 1, "no table of files with `unsafe`")];
    };
    let mut unused = BTreeMap::new();
    for row in &rows {
        let listed = row.listed.iter().map(|file| format!("crates/{}/src/{file}", row.name));
        unused.extend(listed.map(|path| (path, row.line)));
    }
    let listed: Vec<String> = unused.keys().cloned().collect();
    let covers = |entry: &str, path: &str| match entry.ends_with('/') {
        true => path.starts_with(entry),
        false => path == entry,
    };
    let mut problems = Vec::new();
    for file in tree.sources() {
        let Some(line) = file.code.lines().position(has_unsafe) else { continue };
        match listed.iter().find(|entry| covers(entry, &file.path)) {
            Some(entry) => drop(unused.remove(entry)),
            None => {
                let what = format!("`unsafe` in a file that {ARCHITECTURE} does not list");
                problems.push(Problem::new(&file.path, line + 1, what));
            }
        }
    }
    let unused = unused.into_iter();
    problems.extend(
        unused.map(|(path, line)| {
            Problem::new(ARCHITECTURE, line, format!("{path} has no `unsafe`"))
        }),
    );
    problems
}

/// Whether a line of code has the keyword. Names such as `unsafe_code` are none.
fn has_unsafe(line: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(problems: Vec<Problem>) -> Vec<String> {
        problems.into_iter().map(|problem| problem.what).collect()
    }

    #[test]
    fn dependencies_must_be_those_of_the_table() {
        let check = |table: &str| {
            let text = format!("# A\n\n| crate | depends on |\n|---|---|\n{table}\n\nText.\n");
            whats(dependencies(&Tree::of(&[
                (ARCHITECTURE, &text),
                ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n[dependencies]\nlibc = \"1\"\n"),
                (
                    "crates/b/Cargo.toml",
                    "[dependencies]\na.workspace = true\n[dev-dependencies]\nc.workspace = true\n",
                ),
                ("crates/c/Cargo.toml", "[target.'cfg(unix)'.dependencies]\nb = { path = \"\" }\n"),
            ])))
        };
        assert_eq!(check("| `a` | |\n| `b` | `a` |\n| `c` | `b` |"), [""; 0]);
        assert_eq!(check("| `a` | |\n| `b` | |\n| `c` | `b` |"), ["b depends on a"]);
        assert_eq!(
            check("| `a` | `b` |\n| `b` | `a` |"),
            ["a does not depend on b", "no row of c"]
        );
        assert_eq!(check("| `a` | |\n| `b` | `a` |\n| `c` | `b` |\n| `d` | |"), ["no crate d"]);
    }

    #[test]
    fn unsafe_must_be_in_listed_files_and_in_all_of_them() {
        let check = |list: &str| {
            let text = format!("| crate | files with `unsafe` |\n|---|---|\n| `a` | {list} |\n");
            whats(unsafe_files(&Tree::of(&[
                (ARCHITECTURE, &text),
                ("crates/a/src/b.rs", "#![allow(unsafe_code)]\nfn b() { unsafe { c() } }\n"),
                ("crates/a/src/d/e.rs", "unsafe fn e() {}\n"),
                ("crates/a/src/f.rs", "#![allow(unsafe_code)]\n// unsafe\n"),
            ])))
        };
        assert_eq!(check("`b.rs`, `d/`"), [""; 0]);
        let unlisted = "`unsafe` in a file that ARCHITECTURE.md does not list";
        assert_eq!(check("`b.rs`"), [unlisted]);
        assert_eq!(check("`b.rs`, `d/`, `f.rs`"), ["crates/a/src/f.rs has no `unsafe`"]);
    }
}
