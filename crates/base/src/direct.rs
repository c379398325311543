//! Reads of files past the page cache, for weights that do not fit into memory: what is kept of
//! them is decided here, not by the system.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Multiple of offsets, lengths and addresses where the system names no other.
const PAGE: usize = 4096;

/// Bytes of a file that are a part of something in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// The file.
    pub path: PathBuf,
    /// The bytes.
    pub range: Range<u64>,
    /// CRC32C of the bytes, where it is known.
    pub crc32c: Option<u32>,
}

/// A file that is read past the page cache, or through it where the file system has no other way.
#[derive(Debug)]
pub struct DirectFile {
    path: PathBuf,
    /// `None` where only `cached` works.
    direct: Option<File>,
    /// Opened at the first read that needs it.
    cached: OnceLock<File>,
    align: usize,
    identity: FileIdentity,
}

/// What tells a file from another one of the same name, or from its later contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl FileIdentity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl DirectFile {
    /// Opens a regular file.
    ///
    /// # Errors
    /// If the file cannot be opened or is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (direct, cached) = match open_direct(path)? {
            Some(file) => (Some(file), OnceLock::new()),
            None => (None, OnceLock::from(File::open(path)?)),
        };
        let metadata = match (&direct, cached.get()) {
            (Some(file), _) | (None, Some(file)) => file.metadata()?,
            (None, None) => std::fs::metadata(path)?,
        };
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let align = direct.as_ref().map_or(1, alignment);
        let identity = FileIdentity::of(&metadata);
        Ok(Self { path: path.to_owned(), direct, cached, align, identity })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether reads pass the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// The bytes that a read of `range` reads: whole units of the file system.
    pub fn covering(&self, range: &Range<u64>) -> Range<u64> {
        let align = self.align as u64;
        range.start / align * align..range.end.next_multiple_of(align)
    }

    /// Reads `range` into `buffer`, which begins with a page of memory and holds what
    /// [`covering`](DirectFile::covering) gives, and returns where the bytes are in it.
    ///
    /// A read that fails is tried once more through the page cache.
    ///
    /// # Errors
    /// If the bytes cannot be read, or the file ends before them.
    pub fn read(&self, range: &Range<u64>, buffer: &mut [u8]) -> io::Result<Range<usize>> {
        let all = self.covering(range);
        let buffer = &mut buffer[..(all.end - all.start) as usize];
        let from = (range.start - all.start) as usize;
        let within = from..from + (range.end - range.start) as usize;
        if let Some(file) = &self.direct
            && read_to(file, buffer, all.start, within.end).is_ok()
        {
            return Ok(within);
        }
        let file = match self.cached.get() {
            Some(file) => file,
            None => {
                let opened = File::open(&self.path)?;
                self.cached.get_or_init(|| opened)
            }
        };
        read_to(file, buffer, all.start, within.end)?;
        forget(file, &all);
        Ok(within)
    }

    /// Whether another file, or other contents, have taken the place of the file.
    pub fn has_changed(&self) -> bool {
        let now = std::fs::metadata(&self.path);
        now.map_or(true, |metadata| FileIdentity::of(&metadata) != self.identity)
    }
}

/// Bytes that files in a folder, or in the one where it would be made, can still take.
///
/// # Errors
/// If the system does not tell.
pub fn free_space(folder: &Path) -> io::Result<u64> {
    let there = folder.ancestors().find(|folder| folder.exists());
    let there = there.filter(|folder| !folder.as_os_str().is_empty());
    let space = rustix::fs::statvfs(there.unwrap_or(Path::new(".")))?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}

/// Opens a file without the page cache; `None` where the file system cannot.
#[cfg(target_os = "linux")]
fn open_direct(path: &Path) -> io::Result<Option<File>> {
    use std::os::unix::fs::OpenOptionsExt;
    match File::options().read(true).custom_flags(libc::O_DIRECT).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a file that the system does not cache.
#[cfg(target_vendor = "apple")]
fn open_direct(path: &Path) -> io::Result<Option<File>> {
    let file = File::open(path)?;
    let refused = rustix::fs::fcntl_nocache(&file, true).is_err();
    Ok((!refused).then_some(file))
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn open_direct(_path: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

/// The multiple of offsets, lengths and addresses that reads of a file take: a page, or more where
/// the file system asks for more.
fn alignment(file: &File) -> usize {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, StatxFlags, statx};
        let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        let named = found.ok().map(|found| found.stx_dio_offset_align.max(found.stx_dio_mem_align));
        let named = named.and_then(|align| usize::try_from(align).ok());
        named.filter(|align| align.is_power_of_two()).map_or(PAGE, |align| align.max(PAGE))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        PAGE
    }
}

/// Reads from `offset` on until `least` bytes are there.
fn read_to(file: &File, buffer: &mut [u8], offset: u64, least: usize) -> io::Result<()> {
    let mut there = 0;
    while there < least {
        match file.read_at(&mut buffer[there..], offset + there as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => there += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Drops what a read has left in the page cache.
fn forget(file: &File, range: &Range<u64>) {
    #[cfg(target_os = "linux")]
    {
        let len = std::num::NonZeroU64::new(range.end - range.start);
        // A hint only.
        let _ = rustix::fs::fadvise(file, range.start, len, rustix::fs::Advice::DontNeed);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, range);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedVec;

    /// A file of `bytes` bytes, in a folder that is removed at the end.
    fn file(name: &str, bytes: usize) -> (PathBuf, Vec<u8>) {
        let path = std::env::temp_dir().join(format!("gannet-{name}-{}", std::process::id()));
        let contents: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect();
        std::fs::write(&path, &contents).unwrap();
        (path, contents)
    }

    /// Memory that begins with a page, in a buffer that is longer.
    fn pages(memory: &mut AlignedVec<u8>) -> &mut [u8] {
        let start = memory.as_ptr().addr().next_multiple_of(PAGE) - memory.as_ptr().addr();
        &mut memory[start..]
    }

    #[test]
    fn any_range_is_read_as_it_is_in_the_file() {
        let (path, contents) = file("direct", 50_000);
        let file = DirectFile::open(&path).unwrap();
        let mut memory = AlignedVec::zeroed(60_000 + 2 * PAGE);
        let buffer = pages(&mut memory);
        for range in [0..1, 0..4096, 1..4097, 4095..8193, 33_000..50_000, 49_999..50_000] {
            let within = file.read(&range, buffer).unwrap();
            let expected = &contents[range.start as usize..range.end as usize];
            assert_eq!(&buffer[within], expected, "{range:?}");
        }
        let error = file.read(&(49_999..50_001), buffer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_was_replaced_or_removed_has_changed() {
        let (path, _) = file("direct-changed", 5000);
        let opened = DirectFile::open(&path).unwrap();
        assert!(!opened.has_changed());
        std::fs::remove_file(&path).unwrap();
        assert!(opened.has_changed());
        file("direct-changed", 5001);
        assert!(opened.has_changed());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_folder_that_is_not_there_yet_has_the_space_of_the_one_above() {
        let folder = std::env::temp_dir();
        assert!(free_space(&folder).unwrap() > 0);
        assert!(free_space(&folder.join("no/such")).unwrap() > 0);
        assert!(free_space(Path::new("no-such-folder")).unwrap() > 0);
    }

    #[test]
    fn a_folder_is_an_error() {
        assert!(DirectFile::open(&std::env::temp_dir()).is_err());
    }
}
