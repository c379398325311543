//! What the cache held of a prompt.

use crate::cache::Unreached;

/// What the cache held of a prompt when its sequence was first admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheLookup {
    /// Tokens that were looked up: the ones before the first row that needs an output, or none of a
    /// sequence that does not use the cache.
    pub looked_up: usize,
    /// Tokens found, which are not computed.
    pub found: usize,
    /// Of these, tokens that came from outside for this sequence.
    pub restored: usize,
    /// Tokens after these that the first group held, but that are computed again.
    pub unreached: Unreached,
    /// Whether the block after all these tokens was in the cache and has been evicted since. Old
    /// evictions are forgotten.
    pub evicted: bool,
}

impl CacheLookup {
    /// Tokens that the first group held.
    pub fn known(&self) -> usize {
        self.found + self.unreached.total()
    }
}
