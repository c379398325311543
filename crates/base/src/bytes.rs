//! Bytes that a device reads weights from: a part of a mapped file, or computed when read.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are read in pieces. They are the same every time.
///
/// Bytes that lie in memory are lent out. Others are computed piece by piece, so that they need
/// not be in memory as a whole: cheapest in pieces of whole rows of the tensor they belong to.
pub trait Bytes: Send + Sync {
    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of `range`: borrowed if they lie in memory in one piece, and then always at the
    /// same place.
    ///
    /// # Panics
    /// If the range ends past the last byte.
    fn read(&self, range: Range<usize>) -> Cow<'_, [u8]>;

    /// The bytes of `range` will be read soon. A hint only.
    fn will_need(&self, _range: Range<usize>) {}

    /// Whoever read the bytes of `range` has a copy of its own: they will hardly be read again.
    /// A hint only.
    fn not_needed(&self, _range: Range<usize>) {}

    /// The bytes of `range` will be read here and there, so that reading ahead is in vain. A hint
    /// only.
    fn random_access(&self, _range: Range<usize>) {}

    /// Keeps the bytes of `range` in memory, as long as they lie in a mapped file.
    fn lock(&self, _range: Range<usize>) -> io::Result<()> {
        let problem = "they are computed when they are read, and lie in no file as they are";
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
