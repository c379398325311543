//! The file of answers: the lines of an earlier run are read, cleaned up and added to.
//!
//! Invariant: a line is written by one call and the file has one writer, so that at most its last
//! line can be cut off. Kept lines are copied into a new file that is renamed, or stay untouched.

use super::input::{LineProblem, object};
use super::plan::BatchPlan;
use anyhow::{Context, Result, bail};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Maximum length of a line that is read: more than any answer has.
const MAX_BYTES: u64 = 1 << 30;
/// The beginning of each line.
const BEGINNING: &str = r#"{"id":"batch_"#;

/// The file of answers, open for appending.
#[derive(Debug)]
pub(crate) struct AnswerFile {
    file: File,
    path: PathBuf,
}

/// One line of the file.
#[derive(Debug, Serialize)]
pub(crate) struct AnswerLine<'a> {
    id: String,
    custom_id: Option<&'a str>,
    response: Option<&'a Response>,
    error: Option<&'a LineProblem>,
}

/// A response of the server.
#[derive(Debug, Serialize)]
pub(crate) struct Response {
    pub status_code: u16,
    pub request_id: String,
    pub body: Box<RawValue>,
}

impl<'a> AnswerLine<'a> {
    /// The line for `answer` to the request with this id.
    pub fn new(custom_id: Option<&'a str>, answer: &'a Result<Response, LineProblem>) -> Self {
        // Each state has random keys from the system.
        let draw = || RandomState::new().hash_one(0);
        let id = format!("batch_req_{:016x}{:08x}", draw(), draw() as u32);
        Self { id, custom_id, response: answer.as_ref().ok(), error: answer.as_ref().err() }
    }
}

impl AnswerFile {
    /// Opens the file, which may exist, and locks it.
    pub fn open(path: &Path) -> Result<Self> {
        let context = || format!("cannot write {}", path.display());
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).with_context(context)?;
        if !file.metadata().with_context(context)?.is_file() {
            bail!("{}: expected a regular file, which is read to resume", path.display());
        }
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                bail!("{}: another process is writing it", path.display())
            }
            // Some file systems do not support locks.
            Err(TryLockError::Error(_)) | Ok(()) => Ok(Self { file, path: path.to_owned() }),
        }
    }

    /// Empties the file.
    pub fn clear(&mut self) -> Result<()> {
        self.file.set_len(0).with_context(|| self.cannot_write())
    }

    /// Keeps the lines with a final answer, marks them in `plan`, and drops the others.
    pub fn resume(&mut self, plan: &mut BatchPlan) -> Result<()> {
        let kept = self.kept(plan)?;
        let result = match kept.as_slice() {
            [] => self.file.set_len(0),
            [Range { start: 0, end }] => self.file.set_len(*end),
            several => self.rewrite(several),
        };
        let result = result.and_then(|()| self.file.seek(SeekFrom::End(0)));
        result.map(drop).with_context(|| self.cannot_write())
    }

    /// Appends a line.
    pub fn write(&mut self, line: &AnswerLine) -> Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.file.write_all(&bytes).with_context(|| self.cannot_write())
    }

    /// Syncs the file to the disk.
    pub fn finish(self) -> Result<()> {
        self.file.sync_data().with_context(|| self.cannot_write())
    }

    fn cannot_write(&self) -> String {
        format!("cannot write {}", self.path.display())
    }

    /// The byte ranges of the lines to keep; adjacent lines are one range.
    fn kept(&self, plan: &mut BatchPlan) -> Result<Vec<Range<u64>>> {
        let mut reader = BufReader::new(&self.file);
        let (mut line, mut kept) = (Vec::new(), Vec::<Range<u64>>::new());
        let (mut start, mut number) = (0, 0);
        loop {
            line.clear();
            number += 1;
            let read = reader.by_ref().take(MAX_BYTES).read_until(b'\n', &mut line);
            let end = start
                + read.with_context(|| format!("cannot read {}", self.path.display()))? as u64;
            if !line.ends_with(b"\n") {
                self.check_cut(number, &line)?;
                return Ok(kept);
            }
            if self.keeps(number, &line, plan)? {
                match kept.last_mut().filter(|last| last.end == start) {
                    Some(last) => last.end = end,
                    None => kept.push(start..end),
                }
            }
            start = end;
        }
    }

    /// Whether a line holds a final answer, the first one for its id.
    fn keeps(&self, number: u64, line: &[u8], plan: &mut BatchPlan) -> Result<bool> {
        #[derive(Deserialize)]
        struct Members<'a> {
            #[serde(rename = "id")]
            _id: IgnoredAny,
            custom_id: Option<String>,
            #[serde(borrow)]
            response: &'a RawValue,
        }
        #[derive(Deserialize)]
        struct Status {
            status_code: u16,
        }
        let members: Members = object(line).map_err(|_| self.foreign(number))?;
        let status: Option<Status> =
            serde_json::from_str(members.response.get()).map_err(|_| self.foreign(number))?;
        // An error of the server itself, or overload, may not come again.
        let lasts = |status: &u16| *status < 500 && *status != 429;
        let status = status.map(|status| status.status_code).filter(lasts);
        let (Some(id), Some(status)) = (members.custom_id, status) else { return Ok(false) };
        Ok(plan.done(&id, status != 200))
    }

    /// Checks that an incomplete last line is the beginning of an answer.
    fn check_cut(&self, number: u64, line: &[u8]) -> Result<()> {
        let compared = line.len().min(BEGINNING.len());
        if line[..compared] != BEGINNING.as_bytes()[..compared] || line.len() as u64 == MAX_BYTES {
            return Err(self.foreign(number));
        }
        Ok(())
    }

    /// Refuses a line of another program, so that it is not dropped.
    fn foreign(&self, number: u64) -> anyhow::Error {
        let path = self.path.display();
        anyhow::anyhow!(
            "{path}: line {number} is no line of answers; --force drops the file's content"
        )
    }

    /// Copies the kept lines into a new file that replaces this one.
    fn rewrite(&mut self, kept: &[Range<u64>]) -> io::Result<()> {
        let aside = self.path.with_added_extension("incomplete");
        let mut file =
            File::options().read(true).write(true).create(true).truncate(true).open(&aside)?;
        // Locked before it has the name; without locks, the old file had none either.
        let _ = file.try_lock();
        let written = kept.iter().try_for_each(|range| {
            self.file.seek(SeekFrom::Start(range.start))?;
            io::copy(&mut (&self.file).take(range.end - range.start), &mut file).map(drop)
        });
        let renamed = written
            .and_then(|()| file.sync_all())
            .and_then(|()| std::fs::rename(&aside, &self.path));
        renamed.inspect_err(|_| drop(std::fs::remove_file(&aside)))?;
        self.file = file;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, status: u16) -> String {
        format!(
            r#"{{"id":"batch_req_1","custom_id":"{id}","response":{{"status_code":{status},"body":{{}}}},"error":null}}"#
        ) + "\n"
    }

    fn resumed(content: &str) -> Result<String> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("out.jsonl");
        std::fs::write(&path, content)?;
        let mut plan = BatchPlan::default();
        for (number, id) in [(1, "a"), (2, "b"), (3, "c")] {
            plan.task(number, Ok(format!(r#"{{"custom_id":"{id}"}}"#).as_bytes()));
        }
        let mut output = AnswerFile::open(&path)?;
        output.resume(&mut plan)?;
        output.write(&AnswerLine::new(Some("new"), &Err(LineProblem::new("x", "y"))))?;
        assert_eq!(folder.path().read_dir()?.count(), 1, "nothing is left beside it");
        Ok(std::fs::read_to_string(&path)?)
    }

    fn check(content: &str, kept: &str) {
        let resumed = resumed(content).unwrap();
        let new = resumed.strip_prefix(kept).expect("what is kept comes first");
        assert!(new.starts_with(BEGINNING) && new.lines().count() == 1, "{resumed}");
        assert!(new.contains(r#""custom_id":"new","response":null,"error":{"code":"x""#), "{new}");
    }

    fn check_foreign(content: &str, place: &str) {
        let error = resumed(content).unwrap_err().to_string();
        assert!(error.contains(place), "{content}: {error}");
    }

    #[test]
    fn whole_answers_are_kept_and_a_cut_one_is_not() {
        let [a, b] = ["a", "b"].map(|id| line(id, 200));
        check("", "");
        check(&format!("{a}{b}"), &format!("{a}{b}"));
        for cut in 1..b.len() {
            check(&format!("{a}{}", &b[..cut]), &a);
        }
    }

    #[test]
    fn what_may_be_answered_better_now_is_dropped_wherever_it_stands() {
        let [a, b, c] = ["a", "b", "c"].map(|id| line(id, 200));
        let (failed, busy, refused) = (line("b", 500), line("b", 429), line("b", 400));
        let unanswered = r#"{"id":"batch_1","custom_id":"b","response":null,"error":{}}"#;
        check(&format!("{a}{failed}{c}"), &format!("{a}{c}"));
        check(&format!("{busy}{a}{unanswered}\n{c}"), &format!("{a}{c}"));
        check(&format!("{a}{refused}"), &format!("{a}{refused}"));
        check(&format!("{a}{b}{a}{c}"), &format!("{a}{b}{c}"));
        let other = line("of another file", 200);
        check(&format!("{other}{failed}"), &other);
    }

    #[test]
    fn files_that_are_something_else_are_left_alone() {
        check_foreign("notes without an end", "line 1");
        check_foreign(&format!("{}notes\n", line("a", 200)), "line 2");
        check_foreign("{\"custom_id\": \"a\", \"body\": {}}\n", "line 1");
        check_foreign("\n", "line 1");
        check_foreign(&format!("{}{{\"custom_id\"", line("a", 200)), "line 2");
    }

    #[test]
    fn one_process_writes_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let first = AnswerFile::open(&path).unwrap();
        assert!(AnswerFile::open(&path).unwrap_err().to_string().contains("another process"));
        drop(first);
        AnswerFile::open(&path).unwrap();
    }
}
