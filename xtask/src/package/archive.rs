//! Compressed tar archives (POSIX ustar) that depend on nothing but their entries and a time.
//!
//! Invariant: entries are sorted by path, folders come before what they hold, owners are 0, and
//! modes are 755 or 644.

use anyhow::{Context, Result, bail, ensure};
use flate2::{Compression, GzBuilder};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

/// The size of a block of a tar archive.
const BLOCK: usize = 512;
/// Offset and width of the fields of a header.
const NAME: (usize, usize) = (0, 100);
const MODE: (usize, usize) = (100, 8);
const OWNER: (usize, usize) = (108, 8);
const GROUP: (usize, usize) = (116, 8);
const SIZE: (usize, usize) = (124, 12);
const TIME: (usize, usize) = (136, 12);
const SUM: (usize, usize) = (148, 8);
const KIND: usize = 156;
const MAGIC: (usize, usize) = (257, 8);
const PREFIX: (usize, usize) = (345, 155);

/// The files of an archive by their paths, which `/` separates.
#[derive(Clone, Debug, Default)]
pub(super) struct Files(BTreeMap<String, Content>);

/// The content of a file.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub bytes: Vec<u8>,
    pub is_program: bool,
}

impl Files {
    /// Adds a file that is read.
    pub fn add(&mut self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.0.insert(path.into(), Content { bytes: bytes.into(), is_program: false });
    }

    /// Adds a file that is run.
    pub fn add_program(&mut self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.0.insert(path.into(), Content { bytes: bytes.into(), is_program: true });
    }

    /// Adds a folder that may be empty.
    pub fn add_folder(&mut self, path: impl Into<String>) {
        self.add(path.into() + "/", "");
    }

    /// The files in order; the path of a folder ends with `/`.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Content)> {
        self.0.iter().map(|(path, content)| (path.as_str(), content))
    }

    /// The archive with every path below `folder`, compressed by gzip.
    pub fn archive(&self, folder: &str, time: u64) -> Result<Vec<u8>> {
        let mut tar = Vec::new();
        let mut folders = BTreeSet::new();
        for (path, content) in self.iter() {
            let path = format!("{folder}/{path}");
            for (at, _) in path.match_indices('/') {
                let above = &path[..=at];
                if folders.insert(above.to_owned()) {
                    tar.extend(header(above, 0, 0o755, b'5', time)?);
                }
            }
            if path.ends_with('/') {
                continue;
            }
            let mode = if content.is_program { 0o755 } else { 0o644 };
            tar.extend(header(&path, content.bytes.len(), mode, b'0', time)?);
            tar.extend(&content.bytes);
            tar.resize(tar.len().next_multiple_of(BLOCK), 0);
        }
        // Two empty blocks end an archive.
        tar.resize(tar.len() + 2 * BLOCK, 0);
        let mut gzip =
            GzBuilder::new().operating_system(255).write(Vec::new(), Compression::best());
        gzip.write_all(&tar)?;
        Ok(gzip.finish()?)
    }
}

/// The header of an entry.
fn header(path: &str, size: usize, mode: u64, kind: u8, time: u64) -> Result<[u8; BLOCK]> {
    let mut header = [0; BLOCK];
    let (prefix, name) = split(path)?;
    put(&mut header, NAME, name.as_bytes());
    put(&mut header, PREFIX, prefix.as_bytes());
    put(&mut header, MAGIC, b"ustar\x0000");
    header[KIND] = kind;
    for (field, value) in [(MODE, mode), (OWNER, 0), (GROUP, 0), (SIZE, size as u64), (TIME, time)]
    {
        put(&mut header, field, octal(value, field.1)?.as_bytes());
    }
    // The sum is over a header with spaces in its place.
    put(&mut header, SUM, b"        ");
    let sum: u64 = header.iter().map(|&byte| u64::from(byte)).sum();
    put(&mut header, SUM, format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

fn put(header: &mut [u8; BLOCK], (start, width): (usize, usize), value: &[u8]) {
    header[start..start + width][..value.len()].copy_from_slice(value);
}

/// Digits that fill a field up to its end, which is a zero.
fn octal(value: u64, width: usize) -> Result<String> {
    let digits = format!("{value:0width$o}", width = width - 1);
    ensure!(digits.len() < width, "{value}: too large for a tar archive");
    Ok(digits)
}

/// A path as the two fields that hold long ones.
fn split(path: &str) -> Result<(&str, &str)> {
    if path.len() <= NAME.1 {
        return Ok(("", path));
    }
    let fits = |&(at, _): &(usize, &str)| at <= PREFIX.1 && path.len() - at - 1 <= NAME.1;
    let (at, _) = path
        .match_indices('/')
        .filter(|(at, _)| at + 1 < path.len())
        .find(fits)
        .with_context(|| format!("{path}: too long for a tar archive"))?;
    if at == 0 {
        bail!("{path}: expected a relative path");
    }
    Ok((&path[..at], &path[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn tar_reads_what_was_written() {
        let mut files = Files::default();
        let long = format!("{}/{}", "d".repeat(90), "f".repeat(90));
        files.add("b/text", "hello");
        files.add_program("a", vec![7; 1000]);
        files.add(long.clone(), "");
        files.add_folder("empty");
        let archive = files.archive("top", 86_400).unwrap();
        assert_eq!(archive, files.archive("top", 86_400).unwrap());
        let mut tar = Command::new("tar");
        tar.args(["--list", "--verbose", "--gzip", "--numeric-owner", "--utc", "--file", "-"]);
        let mut child =
            tar.env("TZ", "UTC").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&archive).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let listed = String::from_utf8(output.stdout).unwrap();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let lines: Vec<_> = listed.lines().map(words).collect();
        let names: Vec<_> = lines.iter().map(|words| words.last().unwrap().as_str()).collect();
        let (folder, long) = (format!("top/{}/", "d".repeat(90)), format!("top/{long}"));
        assert_eq!(names, ["top/", "top/a", "top/b/", "top/b/text", &folder, &long, "top/empty/"]);
        assert_eq!(lines[1][0], "-rwxr-xr-x");
        assert_eq!(lines[3][0], "-rw-r--r--");
        assert_eq!((&*lines[1][2], &*lines[3][2]), ("1000", "5"));
        for line in &lines {
            assert_eq!((&*line[1], &*line[3]), ("0/0", "1970-01-02"), "{line:?}");
        }
    }

    #[test]
    fn what_no_header_holds_is_refused() {
        assert!(octal(8u64.pow(11), SIZE.1).is_err());
        assert!(octal(8u64.pow(11) - 1, SIZE.1).is_ok());
        assert!(split(&"a".repeat(101)).is_err());
        assert!(split(&format!("{}/{}", "a".repeat(156), "b".repeat(90))).is_err());
    }
}
