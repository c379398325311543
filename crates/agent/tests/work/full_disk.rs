//! Logs on a disk that is full.

use crate::Test;
use agent::{LogError, Record, SessionLog};
use std::path::Path;
use std::process::{Command, ExitCode};

pub const TESTS: &[Test] = &[("a_full_disk_leaves_a_log_that_can_be_read", full)];

/// The argument after which this program fills the log at a path.
pub const FILL: &str = "fill-log";

/// Records of some length.
fn text() -> Record {
    Record::Request { text: "x".repeat(300) }
}

/// Adds records to the log at `path` until one is refused. Succeeds if no further one is taken.
pub fn fill(path: &str) -> ExitCode {
    let (mut log, _) = SessionLog::open(Path::new(path)).unwrap();
    log.add(&Record::head("m", "d".to_owned(), "/w".into())).unwrap();
    let errors = (0..100).filter_map(|_| log.add(&text()).err());
    let errors: Vec<LogError> = errors.collect();
    let is_first = matches!(errors.first(), Some(LogError::Io { .. }));
    let is_broken = errors[1..].iter().all(|error| matches!(error, LogError::Broken { .. }));
    let short = Record::Rewind { messages: 1 };
    ExitCode::from(u8::from(!is_first || !is_broken || log.add(&short).is_ok()))
}

fn full() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    // Files have at most 4 KiB, and what goes beyond is an error of the call alone.
    let script = "trap '' XFSZ; ulimit -f 4; exec \"$0\" \"$@\"";
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("bash");
    command.args(["-c", script]).arg(program).arg(FILL).arg(&path);
    assert!(command.status().unwrap().success());
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() > 3000 && bytes.ends_with(b"\n"), "{}", bytes.len());
    let (mut log, records) = SessionLog::open(&path).unwrap();
    log.add(&text()).unwrap();
    assert_eq!(SessionLog::open(&path).unwrap().1.len(), records.len() + 1);
}
