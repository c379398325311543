//! Text from an argument, a file or standard input.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{IsTerminal, Read, stdin};
use std::path::{Path, PathBuf};

/// The source of a text: at most one of the fields is set.
#[derive(Clone, Debug)]
pub(crate) struct TextSource<'a> {
    /// The text itself; `-` means standard input.
    pub argument: Option<&'a str>,
    /// A file with the text; `-` means standard input.
    pub file: Option<&'a PathBuf>,
}

impl TextSource<'_> {
    /// Reads the text, from standard input where no source is set. Where standard input is a
    /// terminal, what is `missing` for `command` is a [`MissingText`].
    pub fn read(&self, command: &str, missing: &str) -> Result<String> {
        match (self.argument, self.file) {
            (Some(text), _) if text != "-" => Ok(text.to_owned()),
            (_, Some(path)) => read_path(path),
            (None, None) if stdin().is_terminal() => {
                Err(MissingText { command: command.to_owned(), problem: missing.to_owned() }.into())
            }
            _ => read_stdin(),
        }
    }
}

/// A text that a command needs, which clap cannot detect.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub(crate) struct MissingText {
    /// The name of the command.
    pub command: String,
    /// What is missing.
    pub problem: String,
}

/// Most bytes of a text: a device may have no end.
const MAX_BYTES: u64 = 1 << 30;

/// Reads the text of a file; `-` means standard input.
pub(crate) fn read_path(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        return read_stdin();
    }
    read_limited(path, MAX_BYTES)
}

/// Reads the text of a file, which may be a pipe, of at most `most` bytes.
pub(crate) fn read_limited(path: &Path, most: u64) -> Result<String> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    read_from(file, most, &path.display().to_string())
}

fn read_stdin() -> Result<String> {
    read_from(stdin().lock(), MAX_BYTES, "standard input")
}

fn read_from(from: impl Read, most: u64, name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    let read = from.take(most + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > most {
        bail!("{name}: expected at most {most} bytes, found more");
    }
    utf8(bytes, name)
}

fn utf8(bytes: Vec<u8>, name: &str) -> Result<String> {
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => {
            let offset = error.utf8_error().valid_up_to();
            bail!("{name}: expected UTF-8, found other bytes at offset {offset}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_utf8_are_refused_with_their_offset() {
        let error = utf8(b"ab\xffc".to_vec(), "x.txt").unwrap_err().to_string();
        assert_eq!(error, "x.txt: expected UTF-8, found other bytes at offset 2");
    }

    #[test]
    fn a_device_without_an_end_is_read_up_to_the_limit() {
        let error = read_limited(Path::new("/dev/zero"), 1 << 20).unwrap_err().to_string();
        assert_eq!(error, "/dev/zero: expected at most 1048576 bytes, found more");
        assert_eq!(read_limited(Path::new("/dev/null"), 0).unwrap(), "");
    }
}
