//! Counts of the bytes that stored responses and their events hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of bytes that are held.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldBytes(Arc<AtomicUsize>);

impl HeldBytes {
    /// The current number.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts `bytes` for as long as the result lives.
    pub fn charge(&self, bytes: usize) -> ByteCharge {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        ByteCharge { held: self.clone(), bytes }
    }
}

/// Bytes that one holder holds.
#[derive(Debug)]
pub(crate) struct ByteCharge {
    held: HeldBytes,
    bytes: usize,
}

impl ByteCharge {
    /// Counts `bytes` more.
    pub fn grow(&mut self, bytes: usize) {
        self.held.0.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }
}

impl Drop for ByteCharge {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
