//! The file of requests: one JSON object per line, read several times and never held as a whole.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Seek};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Maximum length of a line, which is also the server's limit for a body.
const MAX_BYTES: usize = 32 << 20;
/// Maximum length of a `custom_id`; all ids are held in memory.
const MAX_ID_BYTES: usize = 1024;
/// The supported routes.
const URLS: [&str; 4] =
    ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"];

/// An open file of requests.
#[derive(Debug)]
pub(crate) struct RequestFile {
    file: File,
    /// The name in messages.
    pub name: String,
}

/// Reads the lines of the file.
#[derive(Debug)]
pub(crate) struct RequestLines {
    reader: BufReader<File>,
    line: Vec<u8>,
    number: u64,
}

/// The number of a line, from 1, and the line, or an error for one that is too long.
pub(crate) type NumberedLine<'a> = (u64, Result<&'a [u8], LineProblem>);

/// Why a line is not a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LineProblem {
    pub code: &'static str,
    pub message: String,
}

/// A line with an id, and its call where the line is valid.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RequestLine<'a> {
    pub id: String,
    pub call: Result<BatchCall<'a>, LineProblem>,
}

/// The request of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchCall<'a> {
    pub url: &'static str,
    pub body: &'a str,
}

impl RequestFile {
    /// Opens a file. A source that can be read only once, such as a pipe, is copied first.
    pub fn open(path: &Path) -> Result<Self> {
        let (name, file) = match path.as_os_str() == "-" {
            true => ("standard input".to_owned(), copy(io::stdin().lock())),
            false => (path.display().to_string(), open_file(path)),
        };
        let file = file.with_context(|| format!("cannot read {name}"))?;
        Ok(Self { file, name })
    }

    /// The context of an error of the system.
    pub fn cannot_read(&self) -> String {
        format!("cannot read {}", self.name)
    }

    /// Reads from the first line. Readers share their position: only one may be used at a time.
    pub fn lines(&self) -> Result<RequestLines> {
        let rewound = self.file.try_clone().and_then(|mut file| file.rewind().map(|()| file));
        let reader = BufReader::new(rewound.with_context(|| self.cannot_read())?);
        Ok(RequestLines { reader, line: Vec::new(), number: 0 })
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    let kind = file.metadata()?.file_type();
    // A device may have no end; /dev/null ends at once.
    if kind.is_char_device() && !file.is_terminal() && (&file).take(1).read(&mut [0])? > 0 {
        return Err(io::Error::other("expected a file or a pipe, found a device"));
    }
    if kind.is_file() { Ok(file) } else { copy(file) }
}

/// Copies into an unnamed file that is deleted with the process.
fn copy(mut from: impl Read) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(&mut from, &mut file)?;
    Ok(file)
}

impl RequestLines {
    /// Reads the next line that is not blank.
    pub fn next(&mut self) -> io::Result<Option<NumberedLine<'_>>> {
        loop {
            self.line.clear();
            let mut some = self.reader.by_ref().take(MAX_BYTES as u64 + 1);
            if some.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.line.len() > MAX_BYTES && !self.line.ends_with(b"\n") {
                self.reader.skip_until(b'\n')?;
                let message = format!("expected at most {MAX_BYTES} bytes");
                return Ok(Some((self.number, Err(LineProblem::new("line_too_long", message)))));
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(Some((self.number, Ok(self.line.trim_ascii()))));
            }
        }
    }
}

impl LineProblem {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    fn missing(field: &str) -> Self {
        Self::new("missing_field", format!("{field} is missing"))
    }

    fn invalid(field: &str, expected: &str) -> Self {
        Self::new("invalid_field", format!("{field} must be {expected}"))
    }
}

/// The members of a line; others are ignored.
#[derive(Deserialize)]
struct Members<'a> {
    custom_id: Option<Value>,
    method: Option<Value>,
    url: Option<Value>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
}

impl<'a> RequestLine<'a> {
    /// Parses a line, except for its body, which the server parses.
    pub fn parse(line: &'a [u8]) -> Result<Self, LineProblem> {
        let members: Members = object(line)?;
        Ok(Self { id: members.id()?, call: members.call() })
    }
}

impl<'a> Members<'a> {
    fn id(&self) -> Result<String, LineProblem> {
        let id = text("custom_id", &self.custom_id)?;
        if id.is_empty() || id.len() > MAX_ID_BYTES {
            let expected = format!("a string of 1 to {MAX_ID_BYTES} bytes");
            return Err(LineProblem::invalid("custom_id", &expected));
        }
        Ok(id.to_owned())
    }

    fn call(&self) -> Result<BatchCall<'a>, LineProblem> {
        if text("method", &self.method)? != "POST" {
            return Err(LineProblem::invalid("method", "POST"));
        }
        let url = text("url", &self.url)?;
        let Some(url) = URLS.into_iter().find(|known| *known == url) else {
            return Err(LineProblem::invalid("url", &URLS.join(" or ")));
        };
        let body = self.body.ok_or_else(|| LineProblem::missing("body"))?.get();
        asks_for_an_answer(body)?;
        Ok(BatchCall { url, body })
    }
}

fn text<'a>(field: &str, value: &'a Option<Value>) -> Result<&'a str, LineProblem> {
    let value = value.as_ref().ok_or_else(|| LineProblem::missing(field))?;
    value.as_str().ok_or_else(|| LineProblem::invalid(field, "a string"))
}

/// Checks that the server answers a body with the answer itself, not with a stream or before it is
/// computed. The server checks everything else.
fn asks_for_an_answer(body: &str) -> Result<(), LineProblem> {
    #[derive(Deserialize)]
    struct DeliveryFields {
        stream: Option<bool>,
        background: Option<bool>,
    }
    let Ok(fields) = object::<DeliveryFields>(body.as_bytes()) else { return Ok(()) };
    if fields.stream == Some(true) {
        return Err(LineProblem::invalid("body.stream", "false: a batch has no streams"));
    }
    if fields.background == Some(true) {
        let expected = "false: a batch waits for its answers";
        return Err(LineProblem::invalid("body.background", expected));
    }
    Ok(())
}

/// Parses `bytes` as a JSON object with the members of `T`.
pub(crate) fn object<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, LineProblem> {
    // serde would accept an array too.
    if !bytes.starts_with(b"{") {
        return Err(LineProblem::new("invalid_json", "expected a JSON object"));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let message = error.to_string().replace(" at line 1 column", " at byte");
        LineProblem::new("invalid_json", format!("invalid JSON: {message}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn check_problem(line: &str, expected: &str) {
        let problem =
            RequestLine::parse(line.as_bytes()).and_then(|line| line.call).expect_err(line);
        assert!(problem.message.contains(expected), "{line}: {}", problem.message);
    }

    #[test]
    fn a_line_is_an_id_and_a_call() {
        let line = br#"{"custom_id": "a\n", "method": "POST", "url": "/v1/completions",
            "body": {"prompt": "x" }, "more": [1]}"#;
        let call = BatchCall { url: "/v1/completions", body: r#"{"prompt": "x" }"# };
        assert_eq!(
            RequestLine::parse(line),
            Ok(RequestLine { id: "a\n".to_owned(), call: Ok(call) })
        );
    }

    #[test]
    fn what_is_no_request_is_refused_by_field() {
        check_problem("x", "expected a JSON object");
        check_problem(r#"["a", "POST", "/v1/completions", {}]"#, "expected a JSON object");
        check_problem(r#"{"custom_id": "a"#, "invalid JSON");
        check_problem("{}", "custom_id is missing");
        check_problem(r#"{"custom_id": null}"#, "custom_id is missing");
        check_problem(r#"{"custom_id": 7}"#, "custom_id must be a string");
        check_problem(r#"{"custom_id": ""}"#, "custom_id must be a string of 1");
        check_problem(r#"{"custom_id": "a"}"#, "method is missing");
        check_problem(r#"{"custom_id": "a", "method": "GET"}"#, "method must be POST");
        let line = |rest: &str| format!(r#"{{"custom_id": "a", "method": "POST", {rest}}}"#);
        check_problem(&line(r#""url": "/v1/models""#), "url must be /v1/chat/completions or");
        check_problem(&line(r#""url": "/v1/completions""#), "body is missing");
        let streamed = r#""url": "/v1/completions", "body": {"stream": true}"#;
        check_problem(&line(streamed), "body.stream must be false");
        let later = r#""url": "/v1/responses", "body": {"background": true}"#;
        check_problem(&line(later), "body.background must be false");
    }

    #[test]
    fn a_wrong_line_keeps_its_id_where_it_has_one() {
        let line = RequestLine::parse(br#"{"custom_id": "a", "url": 3}"#).unwrap();
        assert!(line.id == "a" && line.call.is_err());
    }

    #[test]
    fn a_device_without_an_end_is_not_copied() {
        let error = RequestFile::open(Path::new("/dev/zero")).unwrap_err();
        assert!(format!("{error:#}").contains("found a device"), "{error:#}");
    }

    #[test]
    fn lines_are_numbered_with_the_blank_ones_and_read_again_from_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"\n a \r\n").unwrap();
        file.write_all(&vec![b'x'; MAX_BYTES + 1]).unwrap();
        file.write_all(b"\n\nb").unwrap();
        let input = RequestFile::open(&path).unwrap();
        for _ in 0..2 {
            let mut lines = input.lines().unwrap();
            assert_eq!(lines.next().unwrap(), Some((2, Ok(&b"a"[..]))));
            assert!(lines.next().unwrap().unwrap().1.is_err());
            assert_eq!(lines.next().unwrap(), Some((5, Ok(&b"b"[..]))));
            assert_eq!(lines.next().unwrap(), None);
        }
    }
}
