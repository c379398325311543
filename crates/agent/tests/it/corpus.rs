//! The seeds and finds of the fuzzers of logs and of requests, replayed.

use crate::support::open;
use agent::{Host, ResumedSession, SessionLog, ToolAnswer};
use std::fs;
use std::io::Cursor;
use std::path::Path;

/// The files of a target, by their names.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let file = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    };
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|it| file(it.unwrap())).collect();
    assert!(files.len() > 8, "{}", folder.display());
    files
}

#[test]
fn seeds_of_logs_are_sessions_or_errors() {
    for (name, bytes) in corpus("session") {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.jsonl");
        fs::write(&path, &bytes).unwrap();
        let records = SessionLog::open(&path).map(|(_, records)| records);
        let length = fs::metadata(&path).unwrap().len() as usize;
        assert_eq!(length < bytes.len(), name.starts_with("cut"), "{name}");
        assert_eq!(records.is_err(), name.starts_with("wrong"), "{name}: {records:?}");
        let session = records.ok().and_then(ResumedSession::of);
        if name.starts_with("good") {
            assert!(session.is_some_and(|it| !it.messages.is_empty()), "{name}");
        }
    }
}

#[test]
fn seeds_of_requests_are_carried_out_or_refused() {
    for (name, bytes) in corpus("tools") {
        let folder = tempfile::tempdir().unwrap();
        let workspace = open(folder.path());
        let work = folder.path().join("work");
        fs::create_dir(work.join("b")).unwrap();
        fs::write(work.join("a"), "one\ntwo\nthree\n").unwrap();
        let mut output = Vec::new();
        Host::new(workspace).serve(Cursor::new(bytes), &mut output).unwrap();
        let output = String::from_utf8(output).unwrap();
        let answer = |line: &str| serde_json::from_str(line).unwrap();
        let answers: Vec<ToolAnswer> = output.lines().map(answer).collect();
        assert!(!answers.is_empty(), "{name}");
        for answer in answers {
            let (is_good, is_wrong) = (name.starts_with("good"), name.starts_with("wrong"));
            assert!(!(is_good && !answer.ok || is_wrong && answer.ok), "{name}: {answer:?}");
        }
    }
}
