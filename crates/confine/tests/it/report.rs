//! Results, one line each, and whether all passed.

use std::io::Write;
use std::process::ExitCode;

/// What came of a test.
pub enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// Counts of a run, and the names that it is limited to.
pub struct Report {
    wanted: Vec<String>,
    passed: usize,
    skipped: usize,
    failed: usize,
}

impl Report {
    pub fn new() -> Report {
        let wanted = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
        Report { wanted: wanted.collect(), passed: 0, skipped: 0, failed: 0 }
    }

    /// Runs a test if the arguments name it.
    pub fn test(&mut self, name: &str, test: impl FnOnce() -> Outcome) {
        if !self.wanted.is_empty() && !self.wanted.iter().any(|part| name.contains(part)) {
            return;
        }
        let line = match test() {
            Outcome::Passed => {
                self.passed += 1;
                format!("test {name} ... ok")
            }
            Outcome::Skipped(why) => {
                self.skipped += 1;
                format!("test {name} ... skipped: {why}")
            }
            Outcome::Failed(why) => {
                self.failed += 1;
                format!("test {name} ... FAILED: {why}")
            }
        };
        say(&line);
    }

    pub fn end(&self) -> ExitCode {
        let Report { passed, skipped, failed, .. } = self;
        say(&format!("{passed} passed; {failed} failed; {skipped} skipped"));
        if *failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Writes a line to standard output.
pub fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("standard output is open");
}
