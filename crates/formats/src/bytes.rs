//! Bytes of a mapped file that keep the map alive.

use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use base::{Bytes, Mmap};

use crate::error::{Error, Result};

/// Maps a regular file. Other kinds are an error: opening a pipe would block until a writer
/// appears.
pub(crate) fn map_file(path: &Path) -> Result<Arc<Mmap>> {
    check_regular(path)?;
    Mmap::open(path).map(Arc::new).map_err(|e| Error::read(path, e))
}

/// An error unless there is a regular file (or a link to one) at `path`.
pub(crate) fn check_regular(path: &Path) -> Result<()> {
    let metadata = path.metadata().map_err(|e| Error::read(path, e))?;
    match metadata.is_file() {
        true => Ok(()),
        false => Err(Error::file(path, "expected a regular file, found something else")),
    }
}

/// A range of a mapped file. Cloning it copies no bytes.
#[derive(Clone, Debug)]
pub(crate) struct MappedBytes {
    map: Arc<Mmap>,
    range: Range<usize>,
}

impl MappedBytes {
    /// The bytes `range` of `map`, or `None` if the range is not inside the map.
    pub fn new(map: Arc<Mmap>, range: Range<usize>) -> Option<Self> {
        let inside = range.start <= range.end && range.end <= map.len();
        inside.then_some(Self { map, range })
    }

    /// The range within the file of a part of the bytes.
    fn within(&self, part: Range<usize>) -> Range<usize> {
        let place = |at: usize| self.range.start.saturating_add(at).min(self.range.end);
        place(part.start)..place(part.end)
    }
}

impl Bytes for MappedBytes {
    fn len(&self) -> usize {
        self.range.len()
    }

    fn read(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.map[self.range.clone()][range])
    }

    fn will_need(&self, range: Range<usize>) {
        self.map.will_need(self.within(range));
    }

    /// Advises the system to drop the pages.
    fn not_needed(&self, range: Range<usize>) {
        self.map.not_needed(self.within(range));
    }

    fn random_access(&self, range: Range<usize>) {
        self.map.random_access(self.within(range));
    }

    fn lock(&self, range: Range<usize>) -> io::Result<()> {
        self.map.lock(self.within(range))
    }
}
