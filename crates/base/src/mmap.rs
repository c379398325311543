//! Read-only memory maps of whole files.
//!
//! A map is shared (`Arc`) by everything that borrows weights from the file, and releases pages
//! that are no longer needed, so that packing weights into memory of our own does not double what
//! the process holds.
#![allow(unsafe_code)]

use crate::bytes::Bytes;
use crate::direct::FilePart;
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

/// A file mapped read-only. Derefs to its bytes.
#[derive(Debug)]
pub struct Mmap {
    path: PathBuf,
    map: Option<memmap2::Mmap>,
}

impl Mmap {
    /// Maps the file at `path`; an empty file becomes an empty map.
    ///
    /// The file must not be truncated by another process while it is mapped; this
    /// is the caveat every engine that maps weights shares.
    ///
    /// # Errors
    /// If the file cannot be opened or mapped, or is not a regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let map = if metadata.len() == 0 {
            None
        } else {
            // SAFETY: the map is read-only and private to this value; the bytes are only
            // ever read as plain integers and floats, for which any content is valid.
            Some(unsafe { memmap2::Mmap::map(&file)? })
        };
        Ok(Self { path: path.to_owned(), map })
    }

    /// The path the map was opened from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `range` from the start of its first page on, and not past the end of the map.
    fn pages_of(&self, range: Range<usize>) -> Range<usize> {
        let end = range.end.min(self.len());
        range.start.min(end) / page_size() * page_size()..end
    }

    /// The whole pages inside `range`, whose neighbours may still be in use.
    fn pages_within(&self, range: Range<usize>) -> Range<usize> {
        let page = page_size();
        range.start.next_multiple_of(page)..range.end.min(self.len()) / page * page
    }

    /// Gives advice on a range that begins and ends with pages, or at the end of the map.
    fn advise(&self, Range { start, end }: Range<usize>, advice: i32) {
        let Some(map) = &self.map else { return };
        assert!(end <= map.len().next_multiple_of(page_size()), "pages of the map");
        if start >= end {
            return;
        }
        // SAFETY: [start, end) lies inside the pages of the mapping, which is file-backed and
        // read-only, so dropping its pages loses nothing. A failing hint changes nothing.
        unsafe {
            libc::madvise(map.as_ptr().add(start) as *mut libc::c_void, end - start, advice);
        }
    }
}

/// Hints are advice to the kernel.
impl Bytes for Mmap {
    fn len(&self) -> usize {
        self.deref().len()
    }

    fn read(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self[range])
    }

    fn place(&self, range: Range<usize>) -> Option<FilePart> {
        assert!(range.start <= range.end && range.end <= self.len(), "a range inside");
        let range = range.start as u64..range.end as u64;
        Some(FilePart { path: self.path.clone(), range, crc32c: None })
    }

    fn will_need(&self, range: Range<usize>) {
        self.advise(self.pages_of(range), libc::MADV_WILLNEED);
    }

    /// The bytes stay readable; touching them again reads the page cache or the disk.
    fn not_needed(&self, range: Range<usize>) {
        self.advise(self.pages_within(range), libc::MADV_DONTNEED);
    }

    fn random_access(&self, range: Range<usize>) {
        // With the pages at both ends, so that neighbours that are read so too leave no gap.
        let range = self.pages_of(range);
        self.advise(range.start..range.end.next_multiple_of(page_size()), libc::MADV_RANDOM);
    }

    /// Reads the bytes, and keeps them in memory as long as the map lives.
    fn lock(&self, range: Range<usize>) -> io::Result<()> {
        let Some(map) = &self.map else { return Ok(()) };
        let range = self.pages_of(range);
        // SAFETY: the range lies inside the mapping; that its pages stay in memory changes no
        // byte of it.
        match unsafe { libc::mlock(map.as_ptr().add(range.start).cast(), range.len()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn page_size() -> usize {
    // SAFETY: asks for a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(1 << 16)
}

impl Deref for Mmap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_range_reads_the_same_again() {
        let path = std::env::temp_dir().join(format!("gannet-mmap-{}", std::process::id()));
        let bytes: Vec<u8> = (0..100_000u32).map(|i| (i * 7) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let map = Mmap::open(&path).unwrap();
        map.will_need(0..map.len());
        // A part of a page, and the last one, which is not full.
        map.will_need(5000..5010);
        map.will_need(99_990..map.len());
        map.not_needed(100..90_000);
        assert_eq!(&map[..], &bytes[..]);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_locked_or_read_here_and_there_reads_the_same() {
        let path = std::env::temp_dir().join(format!("gannet-mlock-{}", std::process::id()));
        let bytes: Vec<u8> = (0..30_000u32).map(|i| (i * 5) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let map = Mmap::open(&path).unwrap();
        map.random_access(5000..30_000);
        // A system that does not let this process lock memory returns an error.
        let _ = map.lock(4097..4099);
        assert_eq!(map.pages_of(1..1), 0..1);
        let page = page_size();
        // A part of a page is read with its page, and kept with it.
        assert_eq!(map.pages_of(page + 10..page + 20), page..page + 20);
        assert!(map.pages_within(page + 10..page + 20).is_empty());
        assert_eq!(map.pages_within(page - 1..2 * page + 1), page..2 * page);
        assert_eq!(map.pages_of(29_999..usize::MAX).end, 30_000);
        assert_eq!(&map[..], &bytes[..]);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_directory_is_an_error_not_a_map() {
        assert!(Mmap::open(&std::env::temp_dir()).is_err());
    }
}
