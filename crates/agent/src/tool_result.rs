//! Results that fit their limit: the head and the tail of a text, and where the whole is.

use crate::printable::printable;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Most bytes of a result, unless a request sets another limit.
pub const MAX_RESULT_BYTES: usize = 16 << 10;

/// The least limit that a request can set: below it no note of what is left out fits.
pub(crate) const MIN_RESULT_BYTES: usize = 1 << 10;

/// Bytes of a result that tools that fill it keep for its head and its end.
pub(crate) const FRAME_BYTES: usize = 512;

/// Bytes of a limit that the note of what is left out may take.
const NOTE_BYTES: usize = 512;

/// `text` if it fits in `limit` bytes, else its head and tail, and between them a note that the
/// whole is in `file`.
pub(crate) fn fitted(text: &str, limit: usize, file: &Path) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let (head, tail) = parts(limit);
    joined(head_of(text, head), tail_of(text, tail), text.len() as u64, file)
}

/// The printable text of `source` from the byte `from` to `to`, of which `limit` bytes are shown as
/// [`fitted`] does; `file` is its path.
///
/// # Errors
///
/// If the file cannot be read.
pub(crate) fn fitted_file(
    source: &File,
    file: &Path,
    (from, to): (u64, u64),
    limit: usize,
) -> io::Result<String> {
    let length = to.saturating_sub(from);
    if length <= limit as u64 {
        let whole = printable(&part(source, from, length)?);
        return Ok(fitted(&whole, limit, file));
    }
    let (head, tail) = parts(limit);
    let first = printable(&part(source, from, head as u64)?);
    let last = printable(&part(source, to - tail as u64, tail as u64)?);
    Ok(joined(head_of(&first, head), tail_of(&last, tail), length, file))
}

/// The end of the last whole character of `source` before the byte `to`, not before `from`: what
/// is written while it is read may end within one.
///
/// # Errors
///
/// If the file cannot be read.
pub(crate) fn last_character_end(source: &File, (from, to): (u64, u64)) -> io::Result<u64> {
    let from = from.max(to.saturating_sub(3));
    let bytes = part(source, from, to.saturating_sub(from))?;
    let first = bytes.iter().rposition(|byte| !(0x80..=0xbf).contains(byte));
    let Some(first) = first else { return Ok(to) };
    let length = match bytes[first] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    Ok(if bytes.len() - first < length { from + first as u64 } else { to })
}

fn part(mut file: &File, from: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Bytes of the head and of the tail. The tail of a command's output has its errors, and the head
/// what they are about.
fn parts(limit: usize) -> (usize, usize) {
    let bytes = limit.saturating_sub(NOTE_BYTES);
    (bytes / 2, bytes - bytes / 2)
}

fn joined(head: &str, tail: &str, length: u64, file: &Path) -> String {
    let left_out = length.saturating_sub((head.len() + tail.len()) as u64);
    // A path of the system's greatest length would not fit into the note.
    let mut path = printable(file.to_string_lossy().as_bytes());
    path.truncate(path.floor_char_boundary(NOTE_BYTES - 100));
    let gap = if head.ends_with('\n') || head.is_empty() { "" } else { "\n" };
    format!("{head}{gap}[... {left_out} bytes left out; the whole is in {path} ...]\n{tail}")
}

/// The first lines of `text` that have at most `limit` bytes; a part of a line where lines are
/// long.
fn head_of(text: &str, limit: usize) -> &str {
    let head = &text[..text.floor_char_boundary(limit)];
    match head.rfind('\n') {
        Some(end) if end >= head.len() / 2 => &head[..=end],
        _ => head,
    }
}

/// As [`head_of`], the last lines.
fn tail_of(text: &str, limit: usize) -> &str {
    let tail = &text[text.ceil_char_boundary(text.len().saturating_sub(limit))..];
    match tail.find('\n') {
        Some(end) if end < tail.len() / 2 => &tail[end + 1..],
        _ => tail,
    }
}
