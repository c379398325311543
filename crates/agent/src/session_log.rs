//! The log of a session: lines of JSON, one record each, in the order in which things happened.
//!
//! Invariant: a record is written by one call at the end of the file, so that a process that ends
//! at any moment leaves whole records and at most one cut line, which the next one drops. After a
//! record that cannot be written the log takes no more, so that it says what the session knows.

use crate::file_change::FileChange;
use crate::known_facts::KnownFacts;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Version of the format.
const VERSION: u32 = 1;
/// Most bytes of a log.
const MAX_BYTES: u64 = 1 << 30;
/// Most bytes of a record: an answer of 16 MiB and its tokens.
const MAX_RECORD: u64 = 64 << 20;

/// Most bytes of the first one.
const MAX_HEAD: u64 = 1 << 20;

/// A record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case", deny_unknown_fields)]
pub enum Record {
    /// The first record.
    Head {
        /// Version of the format, now 1.
        gannet_agent: u32,
        /// Name of the model.
        model: String,
        /// Digest of the model, its template and the tools.
        conversation: String,
        /// The folder that is worked in.
        workspace: PathBuf,
    },
    /// A message in the form of OpenAI's API.
    Message {
        /// The message.
        message: Value,
        /// The tokens of an answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tokens: Option<LoggedTokens>,
    },
    /// A tool is about to be called.
    CallStarted {
        /// The id of the call.
        id: String,
        /// The tool.
        tool: String,
        /// Its arguments.
        arguments: Value,
    },
    /// A tool has been called.
    CallFinished {
        /// The id of the call.
        id: String,
        /// Whether it succeeded.
        ok: bool,
        /// What the model reads of it: the text of the message that answers the call.
        text: String,
        /// The files that it changed, with what they were.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changed: Vec<FileChange>,
    },
    /// A request of the user begins with the next message.
    Request {
        /// The user's words, which that message ends with.
        text: String,
    },
    /// The user was asked, and has answered.
    Question {
        /// The id of the call; empty of a change after all calls.
        id: String,
        /// The rule of the call, its tool, or the guarded file that it changed.
        #[serde(default)]
        subject: String,
        /// The answer: `once`, `session`, `no`, or `no: ` with a reason.
        answer: String,
    },
    /// The conversation has been replaced by a shorter one.
    Compaction {
        /// Its messages.
        messages: Vec<Value>,
        /// What is known of the requests before.
        #[serde(default)]
        facts: KnownFacts,
        /// Whether the work on the last request continues.
        is_unfinished: bool,
    },
    /// The messages after so many are taken back.
    Rewind {
        /// The messages that stay.
        messages: usize,
    },
}

impl Record {
    /// The first record of a session.
    pub fn head(model: &str, conversation: String, workspace: PathBuf) -> Self {
        Self::Head { gannet_agent: VERSION, model: model.to_owned(), conversation, workspace }
    }
}

/// The tokens of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoggedTokens {
    /// Whether the prompt continues the tokens of the answer before.
    pub continues: bool,
    /// The prompt after those tokens, or all of it.
    pub prompt: Vec<u32>,
    /// The sampled tokens.
    pub sampled: Vec<u32>,
}

/// Why a log is not read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A line is no record.
    #[error("{}, line {line}: {problem}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// What was expected and found.
        problem: String,
    },
    /// A record would make the log longer than what is read.
    #[error("{}: {what}: expected at most {most} bytes, found {found}", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// What is too long.
        what: &'static str,
        /// Most bytes.
        most: u64,
        /// Bytes with the record.
        found: u64,
    },
    /// A record before could not be written.
    #[error("{}: the session has ended, since a record could not be written", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
    },
}

/// A log that records are added to.
#[derive(Debug)]
pub struct SessionLog {
    path: PathBuf,
    file: File,
    /// Bytes of its records.
    length: u64,
    /// Whether a record could not be written.
    is_broken: bool,
}

impl SessionLog {
    /// Opens the log at `path`, or makes it, and gives its records. A last line that is cut off is
    /// removed.
    ///
    /// # Errors
    /// If the file cannot be read or written, is too large, or another line than the last is no
    /// record.
    pub fn open(path: &Path) -> Result<(Self, Vec<Record>), LogError> {
        let io = |source| LogError::Io { path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).mode(0o600).open(path);
        let mut file = file.map_err(io)?;
        let (records, length) = read(path, &mut file)?;
        if file.metadata().map_err(io)?.len() > length {
            file.set_len(length).map_err(io)?;
        }
        Ok((Self { path: path.to_owned(), file, length, is_broken: false }, records))
    }

    /// Adds a record.
    ///
    /// # Errors
    /// If it cannot be written or the log would be too long to be read. Then no further record can
    /// be added either.
    pub fn add(&mut self, record: &Record) -> Result<(), LogError> {
        if self.is_broken {
            return Err(LogError::Broken { path: self.path.clone() });
        }
        let added = self.append(record);
        self.is_broken = added.is_err();
        added
    }

    fn append(&mut self, record: &Record) -> Result<(), LogError> {
        let mut line =
            serde_json::to_vec(record).map_err(io::Error::from).map_err(|it| self.io(it))?;
        line.push(b'\n');
        self.check_length(line.len() as u64)?;
        let written = match self.file.write(&line) {
            Ok(bytes) if bytes == line.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::WriteZero.into()),
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            // What was written of the record is no line. If it stays, the next process drops it.
            let _ = self.file.set_len(self.length);
            return Err(self.io(error));
        }
        self.length += line.len() as u64;
        Ok(())
    }

    /// Checks that a log with a record of so many bytes can be read.
    fn check_length(&self, bytes: u64) -> Result<(), LogError> {
        let most_of_one = if self.length == 0 { MAX_HEAD } else { MAX_RECORD };
        let rows = [
            ("a record", most_of_one, bytes),
            ("the session", MAX_BYTES, self.length.saturating_add(bytes)),
        ];
        match rows.into_iter().find(|(_, most, found)| found > most) {
            Some((what, most, found)) => {
                Err(LogError::Full { path: self.path.clone(), what, most, found })
            }
            None => Ok(()),
        }
    }

    /// Waits until all records are on the disk.
    ///
    /// # Errors
    /// If the system cannot say so.
    pub fn sync(&self) -> Result<(), LogError> {
        self.file.sync_data().map_err(|error| self.io(error))
    }

    fn io(&self, source: io::Error) -> LogError {
        LogError::Io { path: self.path.clone(), source }
    }
}

/// The records of the log at `path`, which another process may be writing.
///
/// # Errors
/// If the file cannot be read, is too large, or another line than the last is no record.
pub fn read_log(path: &Path) -> Result<Vec<Record>, LogError> {
    let io = |source| LogError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(io)?;
    read(path, &mut file).map(|(records, _)| records)
}

/// The first record of the log at `path`; `None` if there is none.
///
/// # Errors
/// If the file cannot be read, or begins with no record.
pub fn first_record(path: &Path) -> Result<Option<Record>, LogError> {
    let io = |source| LogError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(io)?;
    BufReader::new(file).take(MAX_HEAD).read_until(b'\n', &mut bytes).map_err(io)?;
    if bytes.last() != Some(&b'\n') {
        return Ok(None);
    }
    let wrong = |problem| LogError::Record { path: path.to_owned(), line: 1, problem };
    check_version(&bytes).map_err(wrong)?;
    parsed(&bytes).map(Some).map_err(wrong)
}

/// The record of a line.
fn parsed(line: &[u8]) -> Result<Record, String> {
    serde_json::from_slice(line).map_err(|error| format!("expected a record: {error}"))
}

/// Checks the version of the first line, whose other members may be those of another version.
fn check_version(line: &[u8]) -> Result<(), String> {
    #[derive(Deserialize)]
    struct HeadVersion {
        gannet_agent: u64,
    }
    match serde_json::from_slice(line) {
        Ok(HeadVersion { gannet_agent }) if gannet_agent != u64::from(VERSION) => {
            Err(format!("expected version {VERSION}, found {gannet_agent}"))
        }
        _ => Ok(()),
    }
}

/// The records of a file, and the bytes that they take.
fn read(path: &Path, file: &mut File) -> Result<(Vec<Record>, u64), LogError> {
    let io = |source| LogError::Io { path: path.to_owned(), source };
    let wrong = |line, problem| LogError::Record { path: path.to_owned(), line, problem };
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    let (mut reader, mut records, mut length) = (BufReader::new(file), Vec::new(), 0);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let line = records.len() + 1;
        reader.by_ref().take(MAX_RECORD).read_until(b'\n', &mut bytes).map_err(io)?;
        if bytes.last() != Some(&b'\n') {
            let is_long = bytes.len() as u64 == MAX_RECORD;
            return match is_long {
                true => Err(wrong(line, format!("expected at most {MAX_RECORD} bytes"))),
                false => Ok((records, length)),
            };
        }
        if line == 1 {
            check_version(&bytes).map_err(|problem| wrong(line, problem))?;
        }
        let is_json = || serde_json::from_slice::<IgnoredAny>(&bytes).is_ok();
        match parsed(&bytes) {
            Ok(record) if line == 1 && !matches!(record, Record::Head { .. }) => {
                return Err(wrong(line, "expected the head of a session".to_owned()));
            }
            Ok(record) => records.push(record),
            // Of a power failure, what was not synced may be anything.
            Err(_) if reader.fill_buf().map_err(io)?.is_empty() && !is_json() => {
                return Ok((records, length));
            }
            Err(problem) => return Err(wrong(line, problem)),
        }
        length += bytes.len() as u64;
        if length > MAX_BYTES {
            return Err(wrong(line, format!("expected at most {MAX_BYTES} bytes in all")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_change::FileContent;
    use proptest::prelude::*;
    use serde_json::json;

    fn records() -> Vec<Record> {
        let mut facts = KnownFacts::default();
        facts.take(("bash", &json!({"command": "make"})), true, "exit code 0");
        let tokens = LoggedTokens { continues: false, prompt: vec![1, 2], sampled: vec![3] };
        vec![
            Record::Head {
                gannet_agent: VERSION,
                model: "m".into(),
                conversation: "d".into(),
                workspace: "/w".into(),
            },
            Record::Message { message: json!({"role": "user", "content": "é\n"}), tokens: None },
            Record::Message { message: json!({"role": "assistant"}), tokens: Some(tokens) },
            Record::CallStarted {
                id: "1".into(),
                tool: "write".into(),
                arguments: json!({"path": "x"}),
            },
            Record::CallFinished {
                id: "1".into(),
                ok: true,
                text: "done".into(),
                changed: vec![FileChange {
                    path: "x".into(),
                    before: FileContent::Absent,
                    after: FileContent::Digest("00".into()),
                }],
            },
            Record::Request { text: "é\n".into() },
            Record::Question { id: "2".into(), subject: "bash: make".into(), answer: "no".into() },
            Record::Compaction {
                messages: vec![json!({"role": "user", "content": "so far"})],
                facts,
                is_unfinished: true,
            },
            Record::Rewind { messages: 1 },
        ]
    }

    fn written() -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (mut log, found) = SessionLog::open(&path).unwrap();
        assert_eq!(found, []);
        records().iter().for_each(|record| log.add(record).unwrap());
        log.sync().unwrap();
        std::fs::read(&path).unwrap()
    }

    proptest! {
        #[test]
        fn a_log_that_is_cut_anywhere_has_the_records_before(cut in 0..2000usize) {
            let bytes = written();
            let cut = cut.min(bytes.len());
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log");
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let whole = bytes[..cut].iter().filter(|it| **it == b'\n').count();
            let (mut log, found) = SessionLog::open(&path).unwrap();
            prop_assert_eq!(&found, &records()[..whole]);
            // What is added next is a line of its own.
            log.add(&records()[0]).unwrap();
            let again = SessionLog::open(&path).unwrap().1;
            prop_assert_eq!(again.len(), whole + 1);
        }

        #[test]
        fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log");
            std::fs::write(&path, &bytes).unwrap();
            let _ = SessionLog::open(&path);
        }
    }

    /// The problem of a log of these bytes, which stay.
    fn problem(bytes: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, bytes).unwrap();
        let problem = SessionLog::open(&path).unwrap_err().to_string();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        problem
    }

    #[test]
    fn a_line_that_is_no_record_is_named_unless_it_is_the_last_and_no_json() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut bytes = written();
        let end = bytes.len();
        bytes.extend_from_slice(b"\0\0{\"record\"\n");
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(SessionLog::open(&path).unwrap().1.len(), records().len());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), end as u64);
        bytes.extend_from_slice(&written());
        let found = problem(&bytes);
        assert!(found.contains("line 10: expected a record"), "{found}");
        // A record of another program is no accident.
        let found = problem(&[&written()[..], b"{\"record\":\"other\"}\n"].concat());
        assert!(found.contains("line 10: expected a record: unknown variant `other`"), "{found}");
    }

    #[test]
    fn a_log_of_another_version_is_refused_and_stays() {
        for head in [
            "{\"record\":\"head\",\"gannet_agent\":2,\"new\":[]}\n",
            "{\"gannet_agent\":99999999999}\n",
        ] {
            let found = problem(head.as_bytes());
            assert!(found.contains("line 1: expected version 1, found "), "{found}");
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log");
            std::fs::write(&path, head).unwrap();
            assert!(first_record(&path).is_err());
        }
    }

    #[test]
    fn a_record_that_could_not_be_read_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (mut log, _) = SessionLog::open(&path).unwrap();
        log.add(&records()[0]).unwrap();
        let text = |bytes| Record::Request { text: "x".repeat(bytes) };
        log.add(&text(MAX_HEAD as usize)).unwrap();
        let length = log.length;
        let problem = log.add(&text(MAX_RECORD as usize)).unwrap_err().to_string();
        assert!(problem.contains("a record: expected at most 67108864 bytes"), "{problem}");
        // What comes after it would not be what the session knows.
        let problem = log.add(&text(1)).unwrap_err().to_string();
        assert!(problem.contains("a record could not be written"), "{problem}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), length);
        let (mut log, found) = SessionLog::open(&path).unwrap();
        assert_eq!(found.len(), 2);
        log.length = MAX_BYTES - 10;
        let problem = log.add(&text(1)).unwrap_err().to_string();
        assert!(problem.contains("the session: expected at most 1073741824 bytes"), "{problem}");
    }
}
