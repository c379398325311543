//! Checks of the project's own habits: `cargo xtask tidy`, and the same as a plain test; and the
//! number of tests that were skipped: `cargo xtask skipped`.
//!
//! Invariant: depends on nothing but the standard library, so that it builds in a second.

mod functions;
mod markdown;
mod rust;
mod skipped;
mod tidy;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [task] if task == "tidy" => tidy(),
        [task] if task == "skipped" => skipped(),
        _ => {
            say("usage: cargo xtask tidy|skipped");
            ExitCode::from(2)
        }
    }
}

fn tidy() -> ExitCode {
    match tidy::check(&root()) {
        Ok(found) if found.is_clean() => {
            say(&found.summary());
            ExitCode::SUCCESS
        }
        Ok(found) => {
            found.problems.iter().for_each(|problem| say(problem));
            ExitCode::FAILURE
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

/// The folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Prints a line; a closed pipe is nobody's loss.
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
