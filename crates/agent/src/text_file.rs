//! A file of text as bytes: its lines, line ends and byte order mark, in any encoding in which
//! line ends are those of ASCII.

use crate::error::ToolError;
use crate::files::open_regular;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Most bytes of a file that is read whole.
pub(crate) const MAX_FILE_BYTES: u64 = 16 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A file that was read whole.
pub(crate) struct TextFile {
    /// Its path without links.
    pub path: PathBuf,
    pub bytes: Vec<u8>,
}

impl TextFile {
    /// Reads the file at `path`, which messages call `name`.
    ///
    /// # Errors
    ///
    /// If the path names no file, or the file cannot be read, is too long or holds no text.
    pub fn open(path: &Path, name: &str) -> Result<Self, ToolError> {
        let failed = |source| ToolError::system(format_args!("cannot read {name}"), source);
        let path = fs::canonicalize(path).map_err(failed)?;
        let kind = fs::metadata(&path).map_err(failed)?.file_type();
        if kind.is_dir() {
            return Err(ToolError::new(format!("{name} is a folder; expected a file")));
        }
        let mut bytes = Vec::new();
        let file = open_regular(&path).map_err(failed)?;
        // The length that the system reports may be wrong, as in /proc, or outdated.
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        check_text(&bytes, name)?;
        Ok(Self { path, bytes })
    }

    /// The bytes after the byte order mark.
    pub fn body(&self) -> &[u8] {
        self.bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&self.bytes)
    }

    /// The byte order mark, or nothing.
    pub fn mark(&self) -> &[u8] {
        &self.bytes[..self.bytes.len() - self.body().len()]
    }
}

fn check_text(bytes: &[u8], name: &str) -> Result<(), ToolError> {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let text =
            format!("{name} has more than {} MiB, the most that is read", MAX_FILE_BYTES >> 20);
        return Err(ToolError::new(text));
    }
    if bytes.contains(&0) {
        return Err(ToolError::new(format!("{name} is a binary file: it has zero bytes")));
    }
    Ok(())
}

/// The lines of `bytes`, each with its line end.
pub(crate) fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

/// A line without its line end.
pub(crate) fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A first line of a file without the byte order mark that it may have.
pub(crate) fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line)
}

/// The line end that most lines of `bytes` have.
pub(crate) fn dominant_end(bytes: &[u8]) -> &'static [u8] {
    let ends = bytes.iter().filter(|byte| **byte == b'\n').count();
    let long = bytes.windows(2).filter(|pair| *pair == b"\r\n").count();
    if 2 * long > ends { b"\r\n" } else { b"\n" }
}

/// `bytes` with the line end `\n` alone.
pub(crate) fn with_short_ends(bytes: &[u8]) -> Vec<u8> {
    let next = bytes.iter().copied().skip(1).map(Some).chain([None]);
    let pairs = bytes.iter().copied().zip(next);
    pairs.filter(|pair| *pair != (b'\r', Some(b'\n'))).map(|(byte, _)| byte).collect()
}
