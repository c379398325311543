//! Sets the version of all crates wherever it stands: manifests, lock files and the changelog.
//!
//! Invariant: nothing is written before every edit is known, in a tree without other changes.

mod edits;
#[cfg(test)]
mod tests;
mod version;

use edits::Edit;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use version::Version;

const CHANGELOG: &str = "CHANGELOG.md";

/// Sets the version `new` in the project below `root`, and returns what was done. A dry run
/// returns what would be.
///
/// # Errors
/// A version that is none or not greater, a tree with changes, a changelog without any, a file
/// that cannot be read or written, and failures of git and cargo.
pub(crate) fn release(root: &Path, new: &str, dry_run: bool) -> Result<String, String> {
    let new = Version::parse(new)?;
    let changes = output(root, "git", &["status", "--porcelain"])?;
    if !changes.is_empty() {
        return Err(format!("expected a tree without changes, found\n{}", changes.trim_end()));
    }
    let files = output(root, "git", &["ls-files"])?;
    let edits = edits(root, &files, new)?;
    let locks: Vec<&str> =
        files.lines().filter_map(|path| path.strip_suffix("Cargo.lock")).collect();
    if !dry_run {
        edits::write(root, &edits)?;
        locks.iter().try_for_each(|folder| lock(&root.join(folder)))?;
    }
    Ok(report(&edits, &locks, new, dry_run))
}

/// All edits of the files below `root` that git tracks.
fn edits(root: &Path, files: &str, new: Version) -> Result<Vec<Edit>, String> {
    let read = |path: &str| {
        let text = std::fs::read_to_string(root.join(path));
        text.map_err(|error| format!("{path}: {error}"))
    };
    let old = edits::current(&read("Cargo.toml")?)?;
    if new <= old {
        return Err(format!("expected a version after {old}, found {new}"));
    }
    let mut all = Vec::new();
    for path in files.lines().filter(|path| edits::is_manifest(path)) {
        all.extend(edits::of_manifest(path, &read(path)?, old, new));
    }
    all.push(edits::of_changelog(CHANGELOG, &read(CHANGELOG)?, new)?);
    Ok(all)
}

/// Writes the versions of the workspace at `folder` into its lock file, and no other version.
fn lock(folder: &Path) -> Result<(), String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    output(folder, &cargo, &["update", "--workspace", "--quiet"]).map(drop)
}

/// What a command prints.
fn output(folder: &Path, program: &str, args: &[&str]) -> Result<String, String> {
    let failed = |why: &str| format!("{program} {}: {why}", args.join(" "));
    let output = Command::new(program).args(args).current_dir(folder).output();
    let output = output.map_err(|error| failed(&error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim()));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(&error.to_string()))
}

fn report(edits: &[Edit], locks: &[&str], new: Version, dry_run: bool) -> String {
    let mut text = String::new();
    let mut line = |line: &str| writeln!(text, "{line}").expect("a string takes every line");
    edits.iter().for_each(|edit| line(&edit.to_string()));
    locks.iter().for_each(|folder| line(&format!("{folder}Cargo.lock: cargo update --workspace")));
    match dry_run {
        true => line("nothing was written"),
        false => line(&format!("after .ci/run: git commit -am 'release: {new}' && git tag v{new}")),
    }
    text
}
