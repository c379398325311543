//! Checks of the project's own rules (`cargo xtask tidy`, and the same as a plain test), counts of
//! its lines (`cargo xtask lines`) and of the tests that were skipped (`cargo xtask skipped`),
//! releases (`cargo xtask release`) and packages (`cargo xtask package`).
//!
//! Invariant: all but `package` depend on nothing but the standard library.

mod functions;
mod lines;
mod markdown;
mod package;
mod release;
mod rules;
mod rust;
mod skipped;
mod tidy;
mod tree;

use lines::LineCounts;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [task] if task == "tidy" => tidy(),
        [task] if task == "skipped" => skipped(),
        [task, rest @ ..] if task == "lines" => lines(rest),
        [task, rest @ ..] if task == "release" => release(rest),
        [task, rest @ ..] if task == "package" => package(rest),
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    say(
        "usage: cargo xtask tidy | skipped | lines [--json] [FOLDER] | release VERSION [--dry-run]",
    );
    package::usage().iter().for_each(|line| say(line));
    ExitCode::from(2)
}

fn lines(args: &[String]) -> ExitCode {
    let (flags, folders): (Vec<_>, Vec<_>) = args.iter().partition(|arg| arg.starts_with("--"));
    if flags.iter().any(|flag| *flag != "--json") || folders.len() > 1 {
        return usage();
    }
    let folder = folders.first().map_or_else(root, PathBuf::from);
    match LineCounts::of(&folder) {
        Ok(counts) => {
            let json = !flags.is_empty();
            say(&if json { counts.json() } else { counts.table().trim_end().to_owned() });
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&format!("error: {}: {error}", folder.display()));
            ExitCode::FAILURE
        }
    }
}

fn package(args: &[String]) -> ExitCode {
    match package::run(&root(), args) {
        Ok(lines) => {
            lines.iter().for_each(|line| say(line));
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn tidy() -> ExitCode {
    match tidy::check(&root()) {
        Ok(found) => {
            found.exempt.iter().for_each(|problem| say(&format!("not enforced: {problem}")));
            found.problems.iter().for_each(|problem| say(problem));
            if !found.is_clean() {
                return ExitCode::FAILURE;
            }
            say(&found.summary());
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn skipped() -> ExitCode {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    match skipped::take(&target.unwrap_or_else(|| root().join("target")).join("skipped")) {
        Ok(tests) => {
            tests.iter().for_each(|test| say(test));
            say(&format!("{} tests skipped", tests.len()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn release(args: &[String]) -> ExitCode {
    let (flags, versions): (Vec<_>, Vec<_>) = args.iter().partition(|arg| arg.starts_with("--"));
    let [version] = &versions[..] else { return usage() };
    if flags.iter().any(|flag| *flag != "--dry-run") {
        return usage();
    }
    match release::release(&root(), version, !flags.is_empty()) {
        Ok(report) => {
            say(report.trim_end());
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Prints a line. A closed pipe is no error.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_keeps_its_own_rules() {
        let found = tidy::check(&root()).unwrap();
        assert!(found.is_clean(), "\n{}\n", found.problems.join("\n"));
    }
}
