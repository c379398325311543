//! Any bytes as the log of a session: what is read is what stays in the file, so that a record that
//! is added next is a line of its own.
#![no_main]

use agent::{Record, ResumedSession, SessionLog, first_record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let folder = tempfile::tempdir().expect("temporary folders can be made");
    let path = folder.path().join("log.jsonl");
    std::fs::write(&path, data).expect("files can be written");
    let _ = first_record(&path);
    let Ok((mut log, records)) = SessionLog::open(&path) else { return };
    let added = Record::head("m", "d".to_owned(), "/w".into());
    log.add(&added).expect("the log can be written");
    let (_, again) = SessionLog::open(&path).expect("all lines are records");
    assert_eq!(again.split_last(), Some((&added, &*records)));
    assert_eq!(first_record(&path).expect("a record").as_ref(), again.first());
    let Some(session) = ResumedSession::of(records) else { return };
    let messages = session.messages.len();
    assert!(session.turns.iter().all(|turn| turn.message < messages));
});
