//! Bytes that a device reads weights from: a part of a mapped file, or computed when read.

use crate::direct::FilePart;
use std::borrow::Cow;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are read in pieces. They are the same every time.
///
/// Bytes in memory are borrowed. Others are computed piece by piece, so that they need not be in
/// memory as a whole: cheapest in pieces of whole rows of the tensor they belong to.
pub trait Bytes: Send + Sync {
    /// Number of bytes.
    fn len(&self) -> usize;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of `range`: borrowed if they are in memory in one piece, and then always at the
    /// same address.
    ///
    /// # Panics
    /// If the range ends past the last byte.
    fn read(&self, range: Range<usize>) -> Cow<'_, [u8]>;

    /// Whether the bytes can be read; all zero are read where they cannot, as those of a file that
    /// is missing.
    fn are_here(&self) -> bool {
        true
    }

    /// Where the bytes of `range` are in a file; `None` if they are in none, or in several pieces.
    fn place(&self, _range: Range<usize>) -> Option<FilePart> {
        None
    }

    /// The bytes of `range` will be read soon. A hint only.
    fn will_need(&self, _range: Range<usize>) {}

    /// The bytes of `range` were copied and will hardly be read again. A hint only.
    fn not_needed(&self, _range: Range<usize>) {}

    /// The bytes of `range` will be read in random order, so that reading ahead does not help. A
    /// hint only.
    fn random_access(&self, _range: Range<usize>) {}

    /// Locks the bytes of `range`, which are part of a mapped file, in memory.
    ///
    /// # Errors
    /// If the bytes are no part of a file, or the system refuses.
    fn lock(&self, _range: Range<usize>) -> io::Result<()> {
        let problem = "expected bytes of a mapped file, found bytes that are computed when read";
        Err(io::Error::new(io::ErrorKind::Unsupported, problem))
    }
}

/// Shared [`Bytes`].
pub type Storage = Arc<dyn Bytes>;

impl fmt::Debug for dyn Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl Bytes for Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }

    fn read(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self[range])
    }
}
