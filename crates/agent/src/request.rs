//! The lines of JSON between the agent and the process of the tools.
//!
//! A request is `{"id":1,"tool":"read","arguments":{...}}`, with `max_bytes` where its result must
//! be shorter than usual. `{"cancel":1}` ends the call of a request early. The model does not have
//! four of the tools: [`ACCEPT`] makes a change of a guarded file that was undone, [`GUARD`] looks
//! at guarded files, [`JOBS`] lists the jobs that run, and [`LEAVE`] prepares for another process
//! of the tools.

use crate::file_change::FileChange;
use crate::guarded_change::GuardedChange;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{self, BufRead, Read};

/// The name of the request that makes a change of a guarded file: `{"change":NUMBER}`.
pub(crate) const ACCEPT: &str = "accept";

/// The name of the request that looks at guarded files, for calls of tools of other processes:
/// `{"check":false}` before the call, and after it `{"check":true}`, which undoes changes.
pub(crate) const GUARD: &str = "guard";

/// The name of the request that lists the jobs that run: `{}`.
pub(crate) const JOBS: &str = "jobs";

/// The name of the request that ends all commands and leaves their files to a process of the tools
/// which follows this one: `{}`.
pub(crate) const LEAVE: &str = "leave";

/// Most bytes of a line.
pub(crate) const MAX_LINE_BYTES: usize = 8 << 20;

/// What a difference begins with where the file is not as it was before.
const NOT_UNDONE: &str = "[this change could not be undone: it is still there]\n";

/// Most bytes of a reported difference.
const MAX_DIFFERENCE_BYTES: usize = 4 << 10;

/// A call of a tool.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolRequest {
    /// The number that its answer has.
    pub id: u64,
    /// The name of the tool.
    pub tool: String,
    /// The arguments of the call.
    pub arguments: Value,
    /// Most bytes of the result, if not the usual number.
    #[serde(default)]
    pub max_bytes: Option<usize>,
    /// Whether processes of other tools run in the workspace, whose changes of guarded files are
    /// not the user's.
    #[serde(default)]
    pub others: bool,
}

/// What a line asks for.
#[derive(Debug)]
pub(crate) enum Line {
    Call(ToolRequest),
    Cancel(u64),
    /// A line that is no request, with its number, if it has one, and what is wrong.
    Malformed(Option<u64>, String),
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolAnswer {
    /// The number of the request; `None` if the line had none.
    pub id: Option<u64>,
    /// Whether the call was carried out.
    pub ok: bool,
    /// What the model reads.
    pub text: String,
    /// Files that the tool has written itself.
    pub changed: Vec<FileChange>,
    /// Changes of guarded files, which were undone.
    pub guarded: Vec<GuardedReport>,
    /// Commands that still run; `None` where the process of the tools was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<usize>,
}

/// A change of a guarded file, as the agent shows it to the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardedReport {
    /// The number by which it can be accepted.
    pub number: usize,
    /// The file, from the workspace on.
    pub path: String,
    /// `created`, `changed` or `removed`.
    pub kind: String,
    /// The change as a unified difference, or its beginning.
    pub difference: String,
    /// Whether the file is as it was before.
    pub undone: bool,
}

impl ToolAnswer {
    /// An answer that says why a request was not carried out.
    pub(crate) fn refused(id: Option<u64>, text: String) -> Self {
        Self { id, ok: false, text, changed: Vec::new(), guarded: Vec::new(), jobs: None }
    }
}

impl GuardedReport {
    /// The report of a change with its number.
    pub(crate) fn of(number: usize, change: &GuardedChange) -> Self {
        let mut difference = change.difference();
        if !change.is_undone {
            difference.insert_str(0, NOT_UNDONE);
        }
        if difference.len() > MAX_DIFFERENCE_BYTES {
            difference.truncate(difference.floor_char_boundary(MAX_DIFFERENCE_BYTES));
            difference.push_str("\n[... more left out ...]\n");
        }
        let path = crate::printable::printable(change.name().to_string_lossy().as_bytes());
        Self { number, path, kind: change.kind().to_owned(), difference, undone: change.is_undone }
    }
}

impl Line {
    /// The next line of `input`; `None` at its end.
    ///
    /// # Errors
    ///
    /// If the input cannot be read.
    pub fn next(input: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = Vec::new();
        let mut part = input.take(MAX_LINE_BYTES as u64 + 1);
        if part.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        if line.len() <= MAX_LINE_BYTES || line.ends_with(b"\n") {
            return Ok(Some(Self::parse(&line)));
        }
        skip_line(part.into_inner())?;
        let text = format!("the line has more than {} MiB", MAX_LINE_BYTES >> 20);
        Ok(Some(Self::Malformed(None, text)))
    }

    fn parse(line: &[u8]) -> Self {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Cancel {
            cancel: u64,
        }
        let value: Value = match serde_json::from_slice(line) {
            Ok(value) => value,
            Err(error) => return Self::Malformed(None, format!("the line is no JSON: {error}")),
        };
        // Lists would be taken for members in order.
        if !value.is_object() {
            return Self::Malformed(None, "the line is no request: expected an object".to_owned());
        }
        if let Ok(Cancel { cancel }) = Cancel::deserialize(&value) {
            return Self::Cancel(cancel);
        }
        let id = value.get("id").and_then(Value::as_u64);
        match serde_path_to_error::deserialize(value) {
            Ok(request) => Self::Call(request),
            Err(error) => Self::Malformed(id, format!("the line is no request: {error}")),
        }
    }
}

/// Reads to the end of the line without holding it.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let bytes = input.fill_buf()?;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(bytes.len(), |end| end + 1);
        input.consume(count);
        if end.is_some() || count == 0 {
            return Ok(());
        }
    }
}
