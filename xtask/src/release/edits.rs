//! The lines in which a version stands.
//!
//! Invariant: lines are found by what they say of the project's own crates; the same version of
//! another project stays.

use super::version::Version;
use std::fmt;
use std::path::Path;

/// Tables of manifests that name the version of the project.
const TABLES: [&str; 3] = ["[workspace.package]", "[package]", "[project]"];
const UNRELEASED: &str = "## Unreleased";

/// A line that becomes another, or several.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Edit {
    path: String,
    /// From 1.
    line: usize,
    old: String,
    new: String,
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, old, new } = self;
        write!(f, "{path}:{line}\n- {old}")?;
        new.lines().try_for_each(|line| write!(f, "\n{}", format!("+ {line}").trim_end()))
    }
}

/// Whether a file is a manifest of crates or of a Python package.
pub(super) fn is_manifest(path: &str) -> bool {
    matches!(path.rsplit('/').next(), Some("Cargo.toml" | "pyproject.toml"))
}

/// The version of the workspace.
///
/// # Errors
/// If there is none, or it is none of three numbers.
pub(super) fn current(manifest: &str) -> Result<Version, String> {
    let rest = manifest.split_once("[workspace.package]").map_or("", |(_, rest)| rest);
    let table = rest.lines().skip(1).take_while(|line| !line.starts_with('['));
    let mut versions =
        table.filter_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    let version = versions.next().ok_or("Cargo.toml: no version in [workspace.package]")?;
    Version::parse(version).map_err(|error| format!("Cargo.toml: {error}"))
}

/// The edits of a manifest: its own version, and those of crates that it names by path.
pub(super) fn of_manifest(path: &str, text: &str, old: Version, new: Version) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut table = "";
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            table = line.trim();
        }
        let own = TABLES.contains(&table) && line.starts_with("version = ");
        if !own && !line.contains("path = \"") {
            continue;
        }
        let exchanged = ["", "="].iter().fold(line.to_owned(), |line, sign| {
            let version = |version| format!("version = \"{sign}{version}\"");
            line.replace(&version(old), &version(new))
        });
        if exchanged != line {
            let (path, old) = (path.to_owned(), line.to_owned());
            edits.push(Edit { path, line: index + 1, old, new: exchanged });
        }
    }
    edits
}

/// The edit of the changelog: what is unreleased belongs to `new`.
///
/// # Errors
/// If there is no heading for changes that are unreleased, or nothing below it.
pub(super) fn of_changelog(path: &str, text: &str, new: Version) -> Result<Edit, String> {
    let mut lines = text.lines();
    let index = lines.position(|line| line == UNRELEASED);
    let index = index.ok_or_else(|| format!("{path}: no line `{UNRELEASED}`"))?;
    let mut section = lines.take_while(|line| !line.starts_with("## "));
    if section.all(|line| line.trim().is_empty()) {
        return Err(format!("{path}: expected changes below `{UNRELEASED}`, found none"));
    }
    let (path, old) = (path.to_owned(), UNRELEASED.to_owned());
    Ok(Edit { path, line: index + 1, new: format!("{UNRELEASED}\n\n## {new}"), old })
}

/// Makes the edits, which are in the order of their files.
///
/// # Errors
/// If a file cannot be read or written.
pub(super) fn write(root: &Path, edits: &[Edit]) -> Result<(), String> {
    for edits in edits.chunk_by(|a, b| a.path == b.path) {
        let path = root.join(&edits[0].path);
        let failed = |error| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(&path).map_err(failed)?;
        let mut lines: Vec<&str> = text.lines().collect();
        edits.iter().for_each(|edit| lines[edit.line - 1] = &edit.new);
        std::fs::write(&path, lines.join("\n") + "\n").map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "0.1.0";
    const NEW: &str = "0.2.0";

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn versions_of_the_project_are_found_and_others_stay() {
        let check = |line: &str, expected: Option<&str>| {
            let edits = of_manifest("Cargo.toml", line, version(OLD), version(NEW));
            let last = line.lines().last().unwrap().to_owned();
            let found: Vec<_> = edits.iter().map(|edit| (&edit.old, edit.new.as_str())).collect();
            assert_eq!(found, Vec::from_iter(expected.map(|new| (&last, new))), "{line}");
        };
        check("[package]\nversion = \"0.1.0\"", Some("version = \"0.2.0\""));
        check("[project]\nname = \"a\"\nversion = \"0.1.0\"", Some("version = \"0.2.0\""));
        check(
            "a = { version = \"=0.1.0\", path = \"a\" }",
            Some("a = { version = \"=0.2.0\", path = \"a\" }"),
        );
        check(
            "a = { path = \"a\", version = \"0.1.0\" }",
            Some("a = { path = \"a\", version = \"0.2.0\" }"),
        );
        check("[package]\nversion = \"0.0.0\"", None);
        check("[dependencies.b]\nversion = \"0.1.0\"", None);
        check("[dependencies]\nb = { version = \"0.1.0\" }", None);
        check("a = { path = \"a\" }", None);
    }

    #[test]
    fn the_version_is_that_of_the_workspace() {
        let text = "[package]\nversion = \"9.0.0\"\n[workspace.package]\nversion = \"0.1.0\"\n";
        assert_eq!(current(text), Ok(version(OLD)));
        let text = "[workspace.package]\nedition = \"2024\"\n[package]\nversion = \"9.0.0\"\n";
        assert_eq!(current(text).unwrap_err(), "Cargo.toml: no version in [workspace.package]");
        let text = "[workspace.package]\nversion = \"0.1.0-rc\"\n";
        let expected = "Cargo.toml: expected a version such as 1.2.3, found 0.1.0-rc";
        assert_eq!(current(text).unwrap_err(), expected);
    }

    #[test]
    fn a_changelog_without_changes_is_refused() {
        let check = |text: &str| of_changelog("C.md", text, version(NEW)).unwrap_err();
        assert_eq!(check("# C\n\n## 0.1.0\n\n- A.\n"), "C.md: no line `## Unreleased`");
        let empty = "C.md: expected changes below `## Unreleased`, found none";
        assert_eq!(check("# C\n\n## Unreleased\n\n## 0.1.0\n\n- A.\n"), empty);
    }
}
